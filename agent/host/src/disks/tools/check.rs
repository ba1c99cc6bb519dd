//! The filesystems' own checkers, asked to look and to change nothing: `e2fsck -fn`, `xfs_repair -n`, `btrfs check --readonly`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::blkid;
use crate::{CommandError, Commands, Done, Tool};

/// What is asked is what a `mkfs` has left, which is small.
const DEADLINE: Duration = Duration::from_mins(10);

/// More than any `mkfs.btrfs` ends at (6 in version 6.2, 8 or 9 in later ones).
const MKFS_GENERATIONS: u64 = 16;

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
    /// It is not whole, and it is not as `mkfs` left it: somebody has mounted it, and has perhaps lost power while it was in use.
    #[error("{} was mounted since it was made ({}): what its checker says then tells nothing of its mkfs", .0.display(), .1)]
    Mounted(PathBuf, String),
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
    if !bad(&done) || NOT_ITS_FAULT.iter().any(|words| said.contains(words)) {
        return Err(CheckError::NoJudgement(CommandError::Failed { tool, done }));
    }
    match mounted_since(commands, filesystem, device, &said)? {
        Some(trace) => Err(CheckError::Mounted(device.to_owned(), trace)),
        None => Ok(false),
    }
}

/// What shows that the filesystem was mounted after its `mkfs`, which leaves none of it; none when nothing does. It must be known: where the
/// superblock cannot be read there is no judgement.
///
/// ext4: dumpe2fs(8) says how often it was mounted, and the kernel sets `needs_recovery` for as long as it is. xfs: xfs_repair(8) with `-n` says that there
/// are changes in the log, which a `mkfs` writes empty. btrfs: the kernel sets the generation of the tree of UUIDs at the first mount that may write, a log
/// tree comes by an fsync(2); a `mkfs` ends at generation 6 or a few more.
fn mounted_since(
    commands: &dyn Commands,
    filesystem: &str,
    device: &Path,
    said: &str,
) -> Result<Option<String>, CheckError> {
    let ask = |tool: Tool| -> Result<(String, Tool), CheckError> {
        // Whatever its exit code: dumpe2fs(8) says all this first, and fails then at a journal that `mkfs` has not come to. The features that it lists
        // stand before the count of mounts, which must be there.
        let tool = tool.arg(device);
        Ok((commands.run(&tool)?.stdout, tool))
    };
    let number = |text: &str, tool: &Tool, key: &str| {
        let value = text.lines().find_map(|line| {
            let rest = line.trim_start().strip_prefix(key)?;
            // `log_root` is no beginning of `log_root_level`.
            rest.starts_with([' ', '\t', ':'])
                .then(|| rest.trim_start_matches(':').trim().parse::<u64>().ok())?
        });
        value.ok_or_else(|| CheckError::Doubt(format!("`{tool}` does not say {key:?}")))
    };
    match filesystem {
        "ext4" => {
            let (text, tool) = ask(Tool::new("dumpe2fs").arg("-h"))?;
            if text.contains("needs_recovery") {
                return Ok(Some("needs_recovery".to_owned()));
            }
            let mounts = number(&text, &tool, "Mount count")?;
            Ok((mounts > 0).then(|| format!("Mount count: {mounts}")))
        }
        "xfs" => Ok(said
            .contains("valuable metadata changes in a log")
            .then(|| "changes in its log".to_owned())),
        "btrfs" => {
            let (text, tool) = ask(Tool::new("btrfs").args(["inspect-internal", "dump-super"]))?;
            for (key, most) in [
                ("uuid_tree_generation", 0),
                ("log_root", 0),
                ("generation", MKFS_GENERATIONS),
            ] {
                let value = number(&text, &tool, key)?;
                if value > most {
                    return Ok(Some(format!("{key} {value}")));
                }
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// All that it printed, in lower case.
fn said(done: &Done) -> String {
    format!("{}\n{}", done.stdout, done.stderr).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FakeCommands;

    fn judged(filesystem: &str, code: i32, stdout: &str, stderr: &str) -> Option<bool> {
        judged_with(
            filesystem,
            code,
            stdout,
            stderr,
            "Filesystem features: has_journal\nMount count:              0\n\
             generation\t\t6\nlog_root\t\t0\nlog_root_level\t\t0\nuuid_tree_generation\t0\n",
        )
    }

    fn judged_with(
        filesystem: &str,
        code: i32,
        stdout: &str,
        stderr: &str,
        superblock: &'static str,
    ) -> Option<bool> {
        let (stdout, stderr) = (stdout.to_owned(), stderr.to_owned());
        let fake = FakeCommands::new(move |tool| {
            if ["dumpe2fs", "dump-super"].iter().any(|word| tool.contains(word)) {
                return Some(Done {
                    code: 0,
                    stdout: superblock.to_owned(),
                    stderr: String::new(),
                });
            }
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
        // Who was mounted is not judged by a checker that reads no log.
        for superblock in [
            "Filesystem features: has_journal needs_recovery\nMount count:              0\n",
            "Filesystem features: has_journal\nMount count:              2\n",
            "Filesystem features: has_journal\n",
        ] {
            assert_eq!(
                judged_with("ext4", 4, "Free blocks count wrong", "", superblock),
                None,
                "{superblock}"
            );
        }
        for superblock in [
            "generation\t7\nlog_root\t0\nuuid_tree_generation\t7\n",
            "generation\t7\nlog_root\t30408704\nuuid_tree_generation\t0\n",
            "generation\t99\nlog_root\t0\nuuid_tree_generation\t0\n",
            "log_root\t0\nuuid_tree_generation\t0\n",
        ] {
            assert_eq!(
                judged_with("btrfs", 1, opening, "", superblock),
                None,
                "{superblock}"
            );
        }
        let log = "Phase 1 - find\nALERT: The filesystem has valuable metadata changes in a log which is being\nignored";
        assert_eq!(judged("xfs", 1, log, ""), None);
        let missing = FakeCommands::new(|_| None);
        assert!(is_content(&missing, "ext4", Path::new("/dev/vdb")).is_err());
    }
}
