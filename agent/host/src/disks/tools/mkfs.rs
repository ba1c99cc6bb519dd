//! The programs that create filesystems and swap areas: `mkfs.ext4`, `mkfs.xfs`, `mkfs.btrfs`,
//! `mkswap`.

use std::{fs::File, path::Path, time::Duration};

use crate::{CommandError, CommandOutput, Commands, Tool};

/// Discarding a large disk takes minutes on slow storage.
const TIMEOUT: Duration = Duration::from_mins(30);

/// The program for a kind of filesystem. `None` for a kind that the agent does not create.
pub fn program(filesystem: &str) -> Option<&'static str> {
    Some(match filesystem {
        "ext4" => "mkfs.ext4",
        "xfs" => "mkfs.xfs",
        "btrfs" => "mkfs.btrfs",
        "swap" => "mkswap",
        _ => return None,
    })
}

/// Runs the program. Only a holder of a proof calls this. The tool inherits `lock`, the open file
/// with the lock of the whole disk, so that the disk stays locked while the tool runs, even if the
/// agent is killed.
pub(in super::super) fn run(
    commands: &dyn Commands,
    program: &str,
    arguments: &[String],
    device: &Path,
    lock: &File,
) -> Result<CommandOutput, CommandError> {
    let tool = Tool::new(program).args(arguments).arg(device);
    commands.check_with_lock(&tool.deadline(TIMEOUT), lock)
}
