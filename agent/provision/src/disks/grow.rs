//! Step `grow`: online, with the filesystem's own tool, and never smaller.

use virtfleet_agent_core::disks::{DeviceId, plan::Place};
use virtfleet_agent_host::disks::tools::{btrfs, ext4, xfs};

use super::{
    luks::node,
    session::{Effect, Session, StepError},
};

pub(super) fn grow(
    session: &mut Session<'_>,
    place: &Place,
    filesystem: &str,
    mount_point: &str,
    from: u64,
) -> Result<Effect, StepError> {
    let commands = session.engine.commands;
    if let Place::Disk(id) = place {
        session.same(id)?;
        // The device may have grown since the plan, and its partition table may have changed.
        let now = session.engine.disks().current(id)?;
        if let Some(fault) = now.as_ref().and_then(|device| device.fault.as_ref()) {
            return Err(table_changed(mount_point, id, fault));
        }
        let id = now.as_ref().map_or(id, |device| &device.id);
        if let Some((kind, offset)) = session.engine.disks().metadata_behind(id, from)? {
            return Err(StepError::new(format!(
                "{mount_point} does not grow: behind its end, at byte {offset} of /dev/{}, is metadata of {kind}. The disk looks like a part of a volume that \
                 has grown. Unmount it and look at it with that tool; nothing is overwritten",
                id.name
            )));
        }
    }
    let at = session.engine.roots.root(mount_point);
    match filesystem {
        "ext4" => ext4::grow(commands, &node(session, place))?,
        "xfs" => xfs::grow(commands, &at)?,
        "btrfs" => btrfs::grow(commands, &at)?,
        other => return Err(StepError::new(format!("{other} does not grow"))),
    };
    Ok(Effect::Changed)
}

/// Why nothing grows in a partition on which kernel and table do not agree: the kernel's end may
/// lie in another partition of the new table.
pub(super) fn table_changed(what: &str, id: &DeviceId, fault: &str) -> StepError {
    let (name, disk) = (&id.name, id.disk());
    StepError::new(format!(
        "{what} does not grow: {fault}. Compare `sfdisk --dump /dev/{disk}` with \
         /sys/class/block/{name}, and let the kernel read the table again \
         (`partx --update /dev/{disk}`, or a reboot)"
    ))
}
