//! The filesystems' own checkers, asked to look and to change nothing: `e2fsck -fn`, `xfs_repair -n`, `btrfs check --readonly`.

use std::{path::Path, time::Duration};

use super::blkid;
use crate::host::{CommandError, Commands, Done, Tool};

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
    /// It ended without a judgement: it could not open or read the device, or said something else.
    #[error("{}", .0)]
    NoJudgement(CommandError),
    /// There is no checker for that kind.
    #[error("there is no checker for {0:?}")]
    Kind(String),
}

/// What the checkers say when it is the device that fails, or somebody has it, and not the filesystem. In lower case.
const NOT_ITS_FAULT: [&str; 9] = [
    "busy",
    "mounted",
    "in use",
    "input/output error",
    "no such",
    "permission denied",
    "cannot allocate memory",
    "short read",
    "usage:",
];

/// Whether the checker finds nothing wrong. The filesystem must not be mounted, nor be held exclusively: btrfs-check(8) wants it for itself.
///
/// "No" is what permits to clear the disk, so it takes more than an exit code: each of them exits in the same way when it cannot open the device.
/// e2fsck(8): 0 is no errors, a code with 4 in it errors left as they are. xfs_repair(8) with `-n`: 1 is corruption, told from the rest by its
/// having begun with its first phase. btrfs-check(8): 1, having begun to open the filesystem. A swap area is whole when blkid knows it: mkswap writes
/// one page.
pub fn is_content(commands: &dyn Commands, filesystem: &str, device: &Path) -> Result<bool, CheckError> {
    let (tool, bad): (_, fn(&Done) -> bool) = match filesystem {
        "ext4" => (Tool::new("e2fsck").args(["-f", "-n"]), |done| done.code & 4 != 0),
        "xfs" => (Tool::new("xfs_repair").arg("-n"), |done| {
            done.code == 1 && said(done).contains("phase 1 ")
        }),
        "btrfs" => (Tool::new("btrfs").args(["check", "--readonly"]), |done| {
            done.code == 1 && said(done).contains("opening filesystem to check")
        }),
        "swap" => {
            let known = blkid::probe(commands, device).map_err(|doubt| CheckError::Doubt(doubt.reason))?;
            return Ok(known.is_some_and(|known| known.kinds == ["swap"]));
        }
        other => return Err(CheckError::Kind(other.to_owned())),
    };
    let tool = tool.arg(device).deadline(DEADLINE);
    let done = commands.run(&tool)?;
    if done.success() {
        return Ok(true);
    }
    let said = said(&done);
    if bad(&done) && !NOT_ITS_FAULT.iter().any(|words| said.contains(words)) {
        Ok(false)
    } else {
        Err(CheckError::NoJudgement(CommandError::Failed { tool, done }))
    }
}

/// All that it printed, in lower case.
fn said(done: &Done) -> String {
    format!("{}\n{}", done.stdout, done.stderr).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::FakeCommands;

    fn judged(filesystem: &str, code: i32, stdout: &str, stderr: &str) -> Option<bool> {
        let (stdout, stderr) = (stdout.to_owned(), stderr.to_owned());
        let fake = FakeCommands::new(move |_| {
            Some(Done {
                code,
                stdout: stdout.clone(),
                stderr: stderr.clone(),
            })
        });
        is_content(&fake, filesystem, Path::new("/dev/vdb")).ok()
    }

    #[test]
    fn only_a_judgement_is_one() {
        assert_eq!(judged("ext4", 0, "", "e2fsck 1.47.0"), Some(true));
        assert_eq!(judged("ext4", 4, "Resize inode not valid.", ""), Some(false));
        assert_eq!(
            judged("ext4", 12, "Group descriptors look bad...", ""),
            Some(false)
        );
        assert_eq!(
            judged(
                "ext4",
                8,
                "e2fsck: No such device or address while trying to open",
                ""
            ),
            None
        );
        assert_eq!(
            judged("ext4", 12, "Error reading block 33 (Input/output error)", ""),
            None
        );
        assert_eq!(judged("xfs", 1, "Phase 1 - find\nbad magic # 0", ""), Some(false));
        assert_eq!(
            judged("xfs", 1, "", "xfs_repair: /dev/vdb contains a mounted filesystem"),
            None
        );
        assert_eq!(judged("xfs", 1, "", "couldn't initialize XFS library"), None);
        assert_eq!(judged("xfs", 2, "Phase 1 - find", ""), None);
        let opening = "Opening filesystem to check...";
        assert_eq!(
            judged("btrfs", 1, opening, "ERROR: cannot open file system"),
            Some(false)
        );
        assert_eq!(
            judged(
                "btrfs",
                1,
                opening,
                "ERROR: cannot open device '/dev/vdb': Device or resource busy"
            ),
            None
        );
        assert_eq!(
            judged("btrfs", 1, "", "ERROR: /dev/vdb is currently mounted"),
            None
        );
        assert_eq!(judged("zfs", 0, "", ""), None);
        let missing = FakeCommands::new(|_| None);
        assert!(is_content(&missing, "ext4", Path::new("/dev/vdb")).is_err());
    }
}
