//! Units that were written and not yet read by systemd. A marker file in `/run` exists from before
//! the first write until systemd has read all units, so that the next run completes what an
//! interrupted one left. A boot reads all units, and starts with an empty `/run`.

use super::{provisioner::DiskProvisioner, step_result::StepError};

use virtfleet_agent_host::{CommandError, Roots, Tool, exists, remove_durably, write_atomic};

const MARKER: &str = "/run/virtfleet/units-unread";
/// Timeout of a daemon-reload, which takes seconds, and longer on a slow machine.
const RELOAD_TIMEOUT: std::time::Duration = std::time::Duration::from_mins(2);

/// Creates the marker, before a unit is written or removed.
pub(super) fn mark(roots: &Roots) -> Result<(), StepError> {
    let note = roots.root(MARKER);
    if !exists(&note) {
        write_atomic(&note, b"", 0o600, None)?;
    }
    Ok(())
}

/// True if systemd has units to read.
pub(super) fn is_marked(roots: &Roots) -> bool {
    exists(&roots.root(MARKER))
}

/// Makes systemd read all units again. It takes seconds.
pub(super) fn reload(provisioner: &DiskProvisioner<'_>) -> Result<(), CommandError> {
    let tool = Tool::new("systemctl")
        .arg("daemon-reload")
        .deadline(RELOAD_TIMEOUT);
    provisioner.commands.check(&tool)?;
    if let Err(error) = remove_durably(&provisioner.roots.root(MARKER)) {
        tracing::warn!(%error, "the next run reads the units again");
    }
    Ok(())
}
