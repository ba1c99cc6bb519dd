//! The programs that make filesystems and swap areas: `mkfs.ext4`, `mkfs.xfs`, `mkfs.btrfs`, `mkswap`.

use std::{fs::File, path::Path, time::Duration};

use crate::{CommandError, Commands, Done, Tool};

/// Discarding a large disk takes minutes on slow storage.
const DEADLINE: Duration = Duration::from_mins(30);

/// The program for a filesystem's kind; none for a kind that is not ours to make.
pub fn program(filesystem: &str) -> Option<&'static str> {
    Some(match filesystem {
        "ext4" => "mkfs.ext4",
        "xfs" => "mkfs.xfs",
        "btrfs" => "mkfs.btrfs",
        "swap" => "mkswap",
        _ => return None,
    })
}

/// Runs it. Only what holds a proof calls this. `lock` is the open file with the lock of the whole
/// disk: the tool inherits it, so that the disk stays locked for as long as the tool runs, also when
/// the agent is killed.
pub(in super::super) fn run(
    commands: &dyn Commands,
    program: &str,
    arguments: &[String],
    device: &Path,
    lock: &File,
) -> Result<Done, CommandError> {
    let tool = Tool::new(program).args(arguments).arg(device);
    commands.check_with_lock(&tool.deadline(DEADLINE), lock)
}
