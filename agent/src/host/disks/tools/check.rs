//! The filesystems' own checkers, asked to look and to change nothing: `e2fsck -fn`, `xfs_repair -n`, `btrfs check --readonly`.

use std::{path::Path, time::Duration};

use super::blkid;
use crate::host::{CommandError, Commands, Tool};

/// What is asked is what a `mkfs` has left, which is small.
const DEADLINE: Duration = Duration::from_mins(10);

/// Why a filesystem could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The checker could not be run to its end.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// blkid could not say what is there.
    #[error("{0}")]
    Doubt(String),
    /// There is no checker for that kind.
    #[error("there is no checker for {0:?}")]
    Kind(String),
}

/// Whether the checker finds nothing wrong. The filesystem must not be mounted.
///
/// Exit codes: e2fsck(8) 0 no errors; xfs_repair(8) with `-n` 1 when there is corruption; btrfs-check(8) 0 when none is found. A swap area is
/// whole when blkid knows it: mkswap writes one page.
pub fn is_content(commands: &dyn Commands, filesystem: &str, device: &Path) -> Result<bool, CheckError> {
    let tool = match filesystem {
        "ext4" => Tool::new("e2fsck").args(["-f", "-n"]),
        "xfs" => Tool::new("xfs_repair").arg("-n"),
        "btrfs" => Tool::new("btrfs").args(["check", "--readonly"]),
        "swap" => {
            let known = blkid::probe(commands, device).map_err(|doubt| CheckError::Doubt(doubt.reason))?;
            return Ok(known.is_some_and(|known| known.kinds == ["swap"]));
        }
        other => return Err(CheckError::Kind(other.to_owned())),
    };
    Ok(commands.run(&tool.arg(device).deadline(DEADLINE))?.success())
}
