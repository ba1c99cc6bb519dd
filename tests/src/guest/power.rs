//! Power operations of a guest: power off, power cut, pause, and migration to another QEMU.

use std::{fs, os::unix::process::ExitStatusExt as _, time::Duration};

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{
    running::{BOOT, Guest},
    say,
    vm::Vm,
};
use crate::wait::{self, eventually};

/// Timeout of a shutdown.
const SHUTDOWN: Duration = Duration::from_mins(2);
/// Time within which a kernel prints its first line, also on a busy machine.
const FIRST_OUTPUT: Duration = Duration::from_secs(90);
/// Interval between presses of the power button: a press is lost while nothing in the guest listens
/// for it.
const PRESS_INTERVAL: Duration = Duration::from_secs(3);

impl Guest {
    /// Cuts the power: kills QEMU. Unwritten data of the guest is lost.
    pub fn cut_power(&self) {
        self.state().kill();
    }

    /// Boots a guest that is not running, from its current disks, and waits for the kernel's first
    /// output.
    ///
    /// Under emulation QEMU itself fails sometimes while a guest boots (seen in one of some hundred
    /// boots): it aborts (`iotlb_to_section: Assertion ... failed`), or both vCPUs stay halted
    /// before the kernel's first output. Either is like a power cut during the boot, after which a
    /// guest must boot as well, so it boots once more.
    pub fn boot(&self) -> Result<()> {
        self.boot_as(self.vm())
    }

    /// Boots it with further kernel parameters, as a user adds them in the boot loader.
    pub fn boot_with(&self, words: &[&str]) -> Result<()> {
        let vm = words.iter().fold(self.vm().clone(), |vm, word| vm.kernel(*word));
        self.boot_as(&vm)
    }

    /// Boots it with another firmware UUID, as a VM that was created again on the same disk. Later
    /// boots have the first one again.
    pub fn boot_with_uuid(&self, uuid: &str) -> Result<()> {
        self.boot_as(&self.vm().clone().uuid(uuid))
    }

    fn boot_as(&self, vm: &Vm) -> Result<()> {
        self.launch(vm, false, false)?;
        let Err(error) = self.until_first_output() else {
            return Ok(());
        };
        say(&format!("{} boots again: {error:#}", vm.name));
        self.state().kill();
        self.launch(vm, false, false)?;
        self.until_first_output()
    }

    fn until_first_output(&self) -> Result<()> {
        let found = eventually(FIRST_OUTPUT, "the kernel's first output", || {
            if !self.console().trim().is_empty() {
                return Ok(Ok(()));
            }
            match self.state().process()?.ended()? {
                Some(status) => Ok(Err(anyhow::anyhow!("QEMU ended with {status}"))),
                None => anyhow::bail!("the console is silent"),
            }
        });
        found.and_then(|inner| inner).with_context(|| self.tail())
    }

    /// Boots it and waits until the guest agent answers. If QEMU aborts or loses an interrupt
    /// meanwhile, it boots once more: see [`Guest::boot`].
    pub fn boot_to_agent(&self) -> Result<()> {
        self.boot()?;
        let Err(error) = self.wait_agent(BOOT) else {
            return Ok(());
        };
        let ended = self.state().process()?.ended()?;
        let aborted = ended.and_then(|status| status.signal()) == Some(Signal::SIGABRT as i32);
        if !aborted && self.emulator_fault().is_none() {
            return Err(error);
        }
        say(&format!(
            "QEMU aborted or lost an interrupt, so {} boots again: {error:#}",
            self.vm().name
        ));
        self.state().kill();
        self.boot()?;
        self.wait_agent(BOOT)
    }

    /// Presses the power button repeatedly until the guest has shut down.
    pub fn power_off(&self) -> Result<()> {
        let mut presses = 0_u32;
        let begun = std::time::Instant::now();
        eventually(SHUTDOWN, "the guest to shut down", || {
            if self.state().process()?.ended()?.is_some() {
                return Ok(());
            }
            if begun.elapsed() >= PRESS_INTERVAL * presses {
                presses += 1;
                // QEMU may end between the check and the press.
                drop(self.state().qmp()?.call("system_powerdown", json!({})));
            }
            anyhow::bail!("it runs")
        })
        .with_context(|| self.tail())?;
        self.state().kill();
        Ok(())
    }

    /// Stops the vCPUs.
    pub fn pause(&self) -> Result<()> {
        self.state().qmp()?.call("stop", json!({})).map(drop)
    }

    /// Resumes the vCPUs.
    pub fn cont(&self) -> Result<()> {
        self.state().qmp()?.call("cont", json!({})).map(drop)
    }

    /// Resets the machine without notifying the guest.
    pub fn reset(&self) -> Result<()> {
        self.state().qmp()?.call("system_reset", json!({})).map(drop)
    }

    /// Simulates a migration: saves memory and devices, ends QEMU, and after `wait` resumes in
    /// another QEMU.
    pub fn migrate(&self, wait: Duration) -> Result<()> {
        let file = self.folder().join("saved");
        self.state().qmp()?.save(&file)?;
        self.state().kill();
        wait::measure(wait, || Ok(()))?;
        self.launch(self.vm(), true, false)?;
        let restored = self.state().qmp()?.restore(&file);
        restored.with_context(|| self.tail())?;
        fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))
    }

    /// Sets the guest's clock from its hardware clock: after a restore the system clock is stale.
    pub fn set_clock(&self) -> Result<()> {
        self.run("date -s \"@$(cat /sys/class/rtc/rtc0/since_epoch)\"")
            .map(drop)
    }
}
