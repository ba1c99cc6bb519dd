//! Files below `/run/virtfleet/state` that root writes for the unprivileged agent.

use std::path::Path;

use crate::{Roots, WriteError, read_text, write_atomic};

/// The agent's group, created by `packaging/sysusers.d/virtfleet.conf`.
pub const AGENT_GROUP: &str = "virtfleet";

/// Atomically writes `content` to `path` (absolute in the guest). Returns whether the agent's group
/// can read it.
///
/// The mode is 0640 with that group. If the group does not exist, the mode is 0600: no unprivileged
/// agent is installed then, and other users must not read the file.
///
/// # Errors
/// The file cannot be written.
pub fn write_for_agent(roots: &Roots, path: &str, content: &[u8]) -> Result<bool, WriteError> {
    let group = group_id(roots);
    let mode = if group.is_some() { 0o640 } else { 0o600 };
    write_atomic(&roots.root(Path::new(path)), content, mode, group)?;
    Ok(group.is_some())
}

/// The group's id from the guest's `/etc/group`, because a static binary has no name service.
fn group_id(roots: &Roots) -> Option<u32> {
    let groups = read_text(&roots.root("/etc/group"), 1 << 20).ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(AGENT_GROUP)).then(|| fields.nth(1)?.parse().ok())?
    })
}
