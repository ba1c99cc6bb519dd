//! A guest's TPM 2.0: swtpm, which runs as long as QEMU and stores its state in the guest's folder.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};

use super::places::Places;
use crate::process::{Launch, Process};

/// The control socket for QEMU.
pub(super) const SOCKET: &str = "tpm.sock";
/// The state folder.
pub(super) const STATE: &str = "tpm";

/// Starts swtpm. It ends when QEMU disconnects, and at the latest when dropped.
pub(super) fn start(places: &Places) -> Result<Process> {
    let (state, socket) = (places.file(STATE), places.file(SOCKET));
    fs::create_dir_all(&state).with_context(|| format!("create {}", state.display()))?;
    let option = |key: &str, path: &Path| format!("{key}={}", path.display());
    let mut process = Launch::new("swtpm")
        .args(["socket", "--tpm2", "--terminate", "--tpmstate"])
        .arg(option("dir", &state))
        .arg("--ctrl")
        .arg(format!("type=unixio,{}", option("path", &socket)))
        .tied()
        .start(&places.folder)
        .context("swtpm, which `make setup` installs")?;
    let there = |_: &Process| socket.exists().then_some(()).context("no socket of swtpm yet");
    process.wait_for(Duration::from_mins(1), "swtpm's socket", there)?;
    Ok(process)
}
