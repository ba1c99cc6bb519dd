//! Device nodes of filesystems.

use std::path::PathBuf;

use virtfleet_agent_core::disks::{DeviceId, plan::Place};

use super::{session::Session, step_result::StepError};

/// The device node of a filesystem: of its disk, or of its open container.
pub(super) fn node(session: &Session<'_>, place: &Place) -> PathBuf {
    match place {
        Place::Disk(id) => session.provisioner.roots.root(format!("/dev/{}", id.name)),
        Place::Mapping { mapping } => session.provisioner.disks().mapping_node(mapping),
    }
}

/// Error for a partition on which kernel and partition table disagree: nothing grows there, because
/// the kernel's end of it may lie in another partition of the new table.
pub(super) fn table_changed(what: &str, id: &DeviceId, fault: &str) -> StepError {
    let (name, disk) = (&id.name, id.disk());
    StepError::new(format!(
        "{what} does not grow: {fault}. Compare `sfdisk --dump /dev/{disk}` with \
         /sys/class/block/{name}, and let the kernel read the table again \
         (`partx --update /dev/{disk}`, or a reboot)"
    ))
}
