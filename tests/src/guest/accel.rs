//! Acceleration of the guest: KVM or emulation.

use std::{
    env, fs,
    fs::OpenOptions,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use super::{image::Image, qmp::Qmp};
use crate::{process::Launch, wait::eventually};

/// The environment variable that selects the accelerator: `kvm` or `tcg`.
pub const CHOICE: &str = "VIRTFLEET_GUEST_ACCEL";

/// Hardware or software execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// The host's KVM.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl Accel {
    /// QEMU's `-accel`.
    pub(super) fn option(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg,thread=multi",
        }
    }
    /// QEMU's CPU model. The plainest one is translated fastest.
    pub(super) fn cpu(self) -> &'static str {
        match self {
            Self::Kvm => "host",
            Self::Tcg => "qemu64",
        }
    }
    /// Features appended to QEMU's `-cpu` model. A CPU with `svm` makes udev load `kvm_amd`, whose
    /// start takes a minute under emulation, holds up `udevadm settle` and can end in a soft
    /// lockup.
    pub(super) fn cpu_features(self) -> &'static str {
        match self {
            Self::Kvm => "",
            Self::Tcg => ",svm=off",
        }
    }
    /// Kernel parameters. An emulated clock need not be checked against another. The tick is
    /// periodic because under emulation a single timer interrupt of a halted vCPU is sometimes
    /// lost, and the next tick compensates. (Seen with QEMU 10.0 and two vCPUs: a boot hung for
    /// minutes with `rcu_preempt kthread timer wakeup didn't happen`.)
    pub(super) fn kernel(self) -> &'static [&'static str] {
        match self {
            Self::Kvm => &[],
            Self::Tcg => &["tsc=reliable", "no_timer_check", "nohz=off", "highres=off"],
        }
    }
    /// Its name, as in [`CHOICE`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// KVM if it runs the image's kernel, TCG otherwise. It is not enough that `/dev/kvm` opens: in
    /// some VMs it does, and the guest stops at an instruction that KVM cannot emulate. So this
    /// starts a kernel, once for each boot of the host and version of QEMU, and caches the result.
    pub fn of_this_machine(image: &Image) -> Result<Self> {
        match env::var(CHOICE).as_deref() {
            Ok("kvm") => return Ok(Self::Kvm),
            Ok("tcg") => return Ok(Self::Tcg),
            Ok(other) if !other.is_empty() => bail!("{CHOICE}={other}: kvm or tcg"),
            _ => {}
        }
        if OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/kvm")
            .is_err()
        {
            return Ok(Self::Tcg);
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").context("boot id of the host")?;
        let key = format!("{} {}", boot.trim(), qemu_version()?);
        let file = image.cache()?.join("kvm");
        let known = fs::read_to_string(&file).unwrap_or_default();
        if let Some(verdict) = known
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{key}: ")))
        {
            return Ok(if verdict == "yes" { Self::Kvm } else { Self::Tcg });
        }
        let outcome = probe(image);
        let verdict = outcome
            .as_ref()
            .map_or_else(|error| format!("no, {error:#}"), |()| "yes".to_owned());
        super::say(&format!("does KVM run a kernel here? {verdict}"));
        fs::write(&file, format!("{key}: {}\n", verdict.replace('\n', " ")))
            .with_context(|| format!("write {}", file.display()))?;
        Ok(if outcome.is_ok() { Self::Kvm } else { Self::Tcg })
    }
}

/// The first line of `qemu-system-x86_64 --version`.
pub(super) fn qemu_version() -> Result<String> {
    let text = Launch::new("qemu-system-x86_64")
        .arg("--version")
        .text(Duration::from_secs(20))
        .context("QEMU; `make setup` installs it")?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Starts the image's kernel with KVM and waits for output.
fn probe(image: &Image) -> Result<()> {
    let folder = tempfile::tempdir().context("a folder for a trial of KVM")?;
    let path = |name: &str| folder.path().join(name);
    let socket = path("qmp.sock");
    let console = path("console");
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut process = Launch::new("qemu-system-x86_64")
        .args([
            "-machine",
            "q35",
            "-accel",
            "kvm",
            "-cpu",
            "host",
            "-smp",
            "2",
            "-m",
            "512",
            "-nodefaults",
        ])
        .args([
            "-display",
            "none",
            "-no-reboot",
            "-append",
            "console=ttyS0 panic=-1",
        ])
        .args(["-kernel", &text(&image.file("vmlinuz"))])
        .args(["-serial", &format!("file:{}", text(&console))])
        .args(["-qmp", &format!("unix:{},server=on,wait=off", text(&socket))])
        .tied()
        .start(folder.path())?;
    let mut qmp = Qmp::connect(&socket).with_context(|| process.log())?;
    let begun = Instant::now();
    eventually(Duration::from_secs(15), "a kernel's first words", || {
        if fs::read_to_string(&console).is_ok_and(|text| text.contains("Linux version")) {
            return Ok(Ok(()));
        }
        if process.ended()?.is_some() {
            return Ok(Err(anyhow::anyhow!("QEMU ended: {}", process.log())));
        }
        let status = qmp.call("query-status", json!({}))?;
        if status["status"] == "internal-error" {
            return Ok(Err(anyhow::anyhow!(
                "KVM met an instruction that it cannot emulate"
            )));
        }
        bail!("nothing on the console after {:?}", begun.elapsed())
    })?
}
