//! Units that were written and that systemd has not read yet. A note in `/run` says so, from before the first is written until all are read: a pass that is cut
//! short in between leaves it to the next one. A boot reads all units, and has an empty `/run`.

use super::{provisioner::DiskProvisioner, step_result::StepError};

use virtfleet_agent_host::{CommandError, Roots, Tool, exists, remove_durably, write_atomic};

/// The note.
const NOTE: &str = "/run/virtfleet/units-unread";
/// Reading takes seconds, on a slow machine many.
const DEADLINE: std::time::Duration = std::time::Duration::from_mins(2);

/// Something is about to be written or removed.
pub(super) fn note(roots: &Roots) -> Result<(), StepError> {
    let note = roots.root(NOTE);
    if !exists(&note) {
        write_atomic(&note, b"", 0o600, None)?;
    }
    Ok(())
}

/// Whether there is something to be read.
pub(super) fn is_noted(roots: &Roots) -> bool {
    exists(&roots.root(NOTE))
}

/// Has systemd read all units again. It takes seconds.
pub(super) fn reload(provisioner: &DiskProvisioner<'_>) -> Result<(), CommandError> {
    let tool = Tool::new("systemctl").arg("daemon-reload").deadline(DEADLINE);
    provisioner.commands.check(&tool)?;
    if let Err(error) = remove_durably(&provisioner.roots.root(NOTE)) {
        tracing::warn!(%error, "units are read once more by the next pass");
    }
    Ok(())
}
