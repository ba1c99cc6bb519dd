//! A guest: its VM, its files, and the QEMU process while it runs.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use regex_lite::Regex;

use super::{
    accel::Accel, agent::Agent, layout, metrics, part::Part, places::Places, qmp::Qmp, tpm, vm::Vm,
    wire::CLOSED,
};
use crate::{
    measure::usage,
    process::{Launch, Process},
    wait::eventually,
};

/// Timeout of a boot on a busy machine.
pub(super) const BOOT: Duration = Duration::from_mins(5);
/// Interval between two looks at the console while the guest agent does not answer.
const LOOK: Duration = Duration::from_secs(10);

/// A guest of a scene. Clones refer to the same guest; the scene ends it.
#[derive(Debug, Clone)]
pub struct Guest(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    vm: Vm,
    accel: Accel,
    places: Places,
    namespace: Option<String>,
    state: Mutex<State>,
}

/// Mutable state.
#[derive(Debug)]
pub(super) struct State {
    /// Devices beside the machine's own. A boot starts with them, and a migration resumes with
    /// them.
    pub(super) parts: Vec<Part>,
    /// Set while QEMU runs.
    running: Option<Running>,
    /// Offset of the current start's console output in the log.
    console_from: usize,
    /// Counter for unique names.
    pub(super) count: u32,
}

#[derive(Debug)]
struct Running {
    qmp: Qmp,
    agent: Agent,
    // Dropped after the connections, so that QEMU ends when no connection is left.
    process: Process,
    _tpm: Option<Process>,
}

impl State {
    /// The connection to QEMU's monitor.
    pub(super) fn qmp(&mut self) -> Result<&mut Qmp> {
        Ok(&mut self.running()?.qmp)
    }
    /// The connection to the guest agent.
    pub(super) fn agent(&mut self) -> Result<&mut Agent> {
        Ok(&mut self.running()?.agent)
    }
    /// The QEMU process.
    pub(super) fn process(&mut self) -> Result<&mut Process> {
        Ok(&mut self.running()?.process)
    }
    /// Kills QEMU (SIGKILL), if it runs.
    pub(super) fn kill(&mut self) {
        self.running = None;
    }
    fn running(&mut self) -> Result<&mut Running> {
        self.running.as_mut().context("the guest does not run")
    }
}

impl Guest {
    /// Creates a guest that does not run yet. The files of its disks must exist.
    pub(super) fn new(
        vm: Vm,
        accel: Accel,
        places: Places,
        namespace: Option<String>,
        parts: Vec<Part>,
    ) -> Self {
        Self(Arc::new(Shared {
            vm,
            accel,
            places,
            namespace,
            state: Mutex::new(State {
                parts,
                running: None,
                console_from: 0,
                count: 0,
            }),
        }))
    }

    /// Removes the TPM's state from a guest that does not run: its next start has a new TPM, as
    /// each start of a VM with a non-persistent TPM.
    pub fn lose_tpm(&self) -> Result<()> {
        let state = self.places().file(tpm::STATE);
        ensure!(self.qemu().is_err(), "{} runs: its TPM is in use", self.vm().name);
        fs::remove_dir_all(&state).with_context(|| format!("remove {}", state.display()))
    }

    /// The VM definition.
    pub fn vm(&self) -> &Vm {
        &self.0.vm
    }
    /// The accelerator.
    pub fn accel(&self) -> Accel {
        self.0.accel
    }
    /// The folder of sockets and logs.
    pub fn folder(&self) -> &Path {
        &self.0.places.folder
    }
    /// The socket of the host's end of the VM's `index`-th additional virtio-serial port (see
    /// [`Vm::port`]).
    pub fn port(&self, index: usize) -> PathBuf {
        self.0.places.file(&format!("port{index}.sock"))
    }
    /// The socket of the serial console.
    pub fn console_socket(&self) -> PathBuf {
        self.0.places.file("console.sock")
    }
    pub(super) fn places(&self) -> &Places {
        &self.0.places
    }
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts QEMU: a boot or, with `incoming`, a process that waits for a saved guest. Parts are
    /// attached from the start unless `bare`.
    pub(super) fn launch(&self, vm: &Vm, incoming: bool, bare: bool) -> Result<()> {
        let places = &self.0.places;
        let mut state = self.state();
        ensure!(state.running.is_none(), "{} runs already", vm.name);
        let longest = places.file("console.sock").as_os_str().len();
        ensure!(
            longest < 108,
            "{} has {longest} bytes, and a socket's path may have 107: a shorter TMPDIR or name of the VM will do",
            places.folder.display()
        );
        for (index, (_, text)) in vm.firmware.iter().enumerate() {
            fs::write(places.file(&format!("fw{index}")), text)?;
        }
        // Removes sockets of an earlier QEMU, so that no client connects to them before the new
        // ones exist.
        for entry in fs::read_dir(&places.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "sock") {
                fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
            }
        }
        state.console_from = console(places).len();
        let tpm = vm.tpm.then(|| tpm::start(places)).transpose()?;
        let mut launch = Launch::new("qemu-system-x86_64")
            .args(layout::machine(vm, places, self.0.accel))
            .tied();
        if let Some(namespace) = &self.0.namespace {
            launch = launch.in_namespace(namespace);
        }
        if !bare {
            launch = launch.args(state.parts.iter().flat_map(Part::arguments));
        }
        if incoming {
            launch = launch.args(["-incoming", "defer"]);
        }
        let mut process = launch.start(&places.folder)?;
        let qmp = places.file("qmp.sock");
        let there = |_: &Process| qmp.exists().then_some(()).context("no socket of QMP yet");
        process.wait_for(Duration::from_mins(1), "QEMU's monitor", there)?;
        let qmp = Qmp::connect(&qmp).with_context(|| process.log())?;
        let agent = Agent::connect(&places.file("agent.sock"))?;
        for (index, port) in vm.ports.iter().enumerate() {
            if let Some(xml) = &port.metrics {
                metrics::serve(&self.port(index), xml.clone())?;
            }
        }
        state.running = Some(Running {
            qmp,
            agent,
            process,
            _tpm: tpm,
        });
        Ok(())
    }

    /// Output of the serial console since the last start of QEMU.
    pub fn console(&self) -> String {
        let from = self.state().console_from;
        let mut text = console(&self.0.places);
        text.split_off(from.min(text.len()))
    }

    /// Waits until the console shows `wanted`, a regular expression, and returns the line. Fails at
    /// once if it shows one of `failures`, or if QEMU ends.
    pub fn wait_console(&self, wanted: &str, failures: &[&str], deadline: Duration) -> Result<String> {
        let wanted = Regex::new(wanted).context("what to wait for")?;
        let failures: Vec<Regex> = failures
            .iter()
            .map(|text| Regex::new(text))
            .collect::<Result<_, _>>()
            .context("what not to wait for")?;
        let found = eventually(deadline, &format!("{wanted} on the console"), || {
            let text = self.console();
            if let Some(line) = text.lines().find(|line| wanted.is_match(line)) {
                return Ok(Ok(line.to_owned()));
            }
            if let Some(line) = text
                .lines()
                .find(|line| failures.iter().any(|bad| bad.is_match(line)))
            {
                return Ok(Err(anyhow::anyhow!("the console shows {line:?} before {wanted}")));
            }
            if let Some(status) = self.state().process()?.ended()? {
                return Ok(Err(anyhow::anyhow!("QEMU ended with {status} before {wanted}")));
            }
            bail!("not yet");
        });
        found.and_then(|inner| inner).with_context(|| self.tail())
    }

    /// Waits until all stages of cloud-init have finished; fails at once if one of its units fails.
    pub fn wait_cloud_init(&self) -> Result<()> {
        self.wait_console("finished at", &["FAILED.*[Cc]loud-init"], BOOT)
            .map(drop)
            .context("cloud-init")
    }

    /// Waits until the guest agent answers. Fails early after a
    /// [fault of the emulator](Guest::emulator_fault).
    pub fn wait_agent(&self, deadline: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            let left = deadline.saturating_sub(begun.elapsed());
            let until = Instant::now() + left.min(LOOK);
            let answered = self.state().agent()?.wait(begun, until);
            let Err(error) = answered else {
                return Ok(());
            };
            let over = begun.elapsed() >= deadline || format!("{error:#}").contains(CLOSED);
            if over || self.stall().is_some() {
                return Err(error.context(self.tail()));
            }
        }
    }

    /// CPU time of all QEMU threads so far.
    pub fn cost(&self) -> Result<Duration> {
        usage::cpu(self.state().process()?.id())
    }

    /// Resident memory of QEMU in bytes.
    pub fn resident(&self) -> Result<u64> {
        usage::resident(self.state().process()?.id())
    }

    /// The process id of QEMU.
    pub fn qemu(&self) -> Result<u32> {
        Ok(self.state().process()?.id())
    }

    /// What QEMU printed if it aborted by a fault of its own, whatever the guest did: with several
    /// vCPUs under emulation it sometimes looks up an address in a memory map that another vCPU has
    /// just replaced (QEMU issue 1921). Otherwise the kernel's line about an interrupt that was
    /// lost: of the disk while only the initrd ran, or of a vCPU's timer.
    pub fn emulator_fault(&self) -> Option<String> {
        let log = fs::read(self.0.places.file("qemu-system-x86_64.log")).unwrap_or_default();
        emulator_fault(&String::from_utf8_lossy(&log))
            .map(str::to_owned)
            .or_else(|| self.stall())
            .or_else(|| lost_ticks(&self.console()).map(str::to_owned))
    }

    /// The console's line about a boot that stalled while only the initrd ran: its process has
    /// waited for the root disk for minutes. The kernel repeats no request to a virtio disk, so a
    /// request whose completion is lost is an endless wait. (Seen once, under emulation. Nothing of
    /// virtfleet runs that early.)
    pub(super) fn stall(&self) -> Option<String> {
        stall(&self.console()).map(str::to_owned)
    }

    /// The last output of QEMU, and of the console since the last start, for errors.
    pub(super) fn tail(&self) -> String {
        let log = |name: &str| fs::read(self.0.places.file(name)).unwrap_or_default();
        let last = |bytes: Vec<u8>| {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(15)..].join("\n")
        };
        format!(
            "{}: QEMU's output ends with:\n{}\nthe console with:\n{}",
            self.0.vm.name,
            last(log("qemu-system-x86_64.log")),
            last(self.console().into_bytes())
        )
    }
}

/// The line of the kernel about the initrd's process; see [`Guest::stall`].
fn stall(console: &str) -> Option<&str> {
    console
        .lines()
        .find(|line| line.contains("INFO: task busybox:1 blocked for more than "))
}

/// The kernel's line about a vCPU whose timer has not interrupted it for many seconds. Whatever
/// waits for a timer there, waits for ever; other interrupts reach it. (Seen under emulation, in a
/// guest that had just been restored: the other vCPU ticked on.)
fn lost_ticks(console: &str) -> Option<&str> {
    console
        .lines()
        .find(|line| line.contains("kthread timer wakeup didn't happen for "))
}

/// The line in QEMU's output that tells of [QEMU issue 1921](Guest::emulator_fault).
fn emulator_fault(log: &str) -> Option<&str> {
    log.lines()
        .find(|line| line.contains("iotlb_to_section: Assertion") && line.ends_with("failed."))
}

fn console(places: &Places) -> String {
    fs::read(places.file("console.log")).map_or_else(
        |_| String::new(),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::{emulator_fault, lost_ticks, stall};

    #[test]
    fn a_boot_stalls_only_in_the_initrd() {
        let line = "[  251.588686] INFO: task busybox:1 blocked for more than 120 seconds.";
        assert_eq!(
            stall(&format!("booting\n{line}\n      Not tainted\n")),
            Some(line)
        );
        for other in [
            "",
            "INFO: task virtfleet-agent:509 blocked for more than 120 seconds.",
            "INFO: task busybox:12 blocked for more than 120 seconds.",
        ] {
            assert_eq!(stall(other), None, "{other}");
        }
    }

    #[test]
    fn a_vcpu_without_ticks_is_told_from_a_slow_one() {
        let line = "[  119.370905] rcu: rcu_preempt kthread timer wakeup didn't happen for 15754 jiffies! \
                    g8317 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x402";
        assert_eq!(lost_ticks(&format!("booted\n{line}\nrcu: more\n")), Some(line));
        for other in [
            "",
            "[  119.362636] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "[  119.373164] rcu: rcu_preempt kthread starved for 15755 jiffies! g8317 f0x0",
            "watchdog: BUG: soft lockup - CPU#1 stuck for 22s!",
        ] {
            assert_eq!(lost_ticks(other), None, "{other}");
        }
    }

    #[test]
    fn only_the_known_fault_of_the_emulator_is_one() {
        let known = "qemu-system-x86_64: system/physmem.c:2678: iotlb_to_section: \
                     Assertion `section_index < d->map.sections_nb' failed.";
        assert_eq!(emulator_fault(&format!("a warning\n{known}\n")), Some(known));
        for other in [
            "",
            "qemu-system-x86_64: block/io.c:1: bdrv_co_write: Assertion `offset >= 0' failed.",
            "qemu-system-x86_64: -drive: Could not open 'iotlb_to_section: Assertion'",
        ] {
            assert_eq!(emulator_fault(other), None, "{other}");
        }
    }
}
