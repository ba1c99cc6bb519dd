//! Step `grow`: online, with the filesystem's own tool, and never smaller.

use virtfleet_agent_core::disks::plan::Place;

use super::{
    luks::node,
    session::{Effect, Session, StepError},
};
use crate::host::disks::tools::{btrfs, ext4, xfs};

pub(super) fn grow(
    session: &mut Session<'_>,
    place: &Place,
    filesystem: &str,
    mount_point: &str,
) -> Result<Effect, StepError> {
    let commands = session.engine.commands;
    if let Place::Disk(id) = place {
        session.same(id)?;
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
