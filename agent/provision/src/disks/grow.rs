//! Step `grow`: online, with the filesystem's own tool, and never smaller.

use virtfleet_agent_core::disks::plan::Place;
use virtfleet_agent_host::disks::tools::{btrfs, ext4, xfs};

use super::{
    places::{node, table_changed},
    session::Session,
    step_result::{Effect, StepError},
};

pub(super) fn grow(
    session: &mut Session<'_>,
    place: &Place,
    filesystem: &str,
    mount_point: &str,
    from: u64,
) -> Result<Effect, StepError> {
    let commands = session.provisioner.commands;
    if let Place::Disk(id) = place {
        session.same(id)?;
        // The device may have grown since the plan, and its partition table may have changed.
        let now = session.provisioner.disks().current(id)?;
        if let Some(fault) = now.as_ref().and_then(|device| device.fault.as_ref()) {
            return Err(table_changed(mount_point, id, fault));
        }
        let id = now.as_ref().map_or(id, |device| &device.id);
        if let Some((kind, offset)) = session.provisioner.disks().metadata_behind(id, from)? {
            return Err(StepError::new(format!(
                "{mount_point} does not grow: behind its end, at byte {offset} of /dev/{}, is metadata of {kind}. The disk looks like a part of a volume that \
                 has grown. Unmount it and inspect it with that tool; nothing is overwritten",
                id.name
            )));
        }
    }
    let at = session.provisioner.roots.root(mount_point);
    match filesystem {
        "ext4" => ext4::grow(commands, &node(session, place))?,
        "xfs" => xfs::grow(commands, &at)?,
        "btrfs" => btrfs::grow(commands, &at)?,
        other => return Err(StepError::new(format!("{other} does not grow"))),
    };
    Ok(Effect::Changed)
}
