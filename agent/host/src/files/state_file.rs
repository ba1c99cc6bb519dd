//! Files that root writes for the agent without rights, under `/run/virtfleet/state`.

use std::path::Path;

use crate::{Roots, WriteError, read_text, write_atomic};

/// The agent's group, as `packaging/sysusers.d/virtfleet.conf` makes it.
pub const AGENT_GROUP: &str = "virtfleet";

/// Writes `content` to `path` (absolute in the guest), atomically, and says whether the agent's group may read it.
///
/// The mode is 0640 with that group. If there is no such group it is 0600, not 0644: then no unprivileged agent is installed
/// that could read it, and nobody else should.
pub fn write_for_agent(roots: &Roots, path: &str, content: &[u8]) -> Result<bool, WriteError> {
    let group = group_id(roots);
    let mode = if group.is_some() { 0o640 } else { 0o600 };
    write_atomic(&roots.root(Path::new(path)), content, mode, group)?;
    Ok(group.is_some())
}

/// The group's number from the guest's own `/etc/group`: a static binary has no name service to ask.
fn group_id(roots: &Roots) -> Option<u32> {
    let groups = read_text(&roots.root("/etc/group"), 1 << 20).ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(AGENT_GROUP)).then(|| fields.nth(1)?.parse().ok())?
    })
}
