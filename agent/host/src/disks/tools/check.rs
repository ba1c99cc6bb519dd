//! The filesystems' own checkers in read-only mode: `e2fsck -fn`, `xfs_repair -n`, `btrfs check
//! --readonly`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::blkid;
use crate::{CommandError, CommandOutput, Commands, Tool};

/// Sufficient for a filesystem that a `mkfs` left, which is small.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Maximum generation that a `mkfs.btrfs` ends at (6 in version 6.2, 8 or 9 in later ones), with a
/// margin.
const MAX_MKFS_GENERATION: u64 = 16;

/// Why a filesystem could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The checker could not be run to its end.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// blkid could not identify the content.
    #[error("{0}")]
    Doubt(String),
    /// The checker printed no verdict: it could not open or read the device, or printed something
    /// else.
    #[error("{}", .0)]
    NoJudgement(CommandError),
    /// It is damaged, but was mounted after its `mkfs`, and perhaps lost power while in use.
    #[error("{} was mounted after it was created ({}): its checker's result does not show whether its mkfs was complete", .0.display(), .1)]
    Mounted(PathBuf, String),
    #[error("there is no checker for {0:?}")]
    Kind(String),
}

/// Messages of the checkers when the device fails or is in use, as opposed to a damaged filesystem.
/// In lower case.
const DEVICE_ERRORS: [&str; 9] = [
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

/// True if the checker finds no error. The filesystem must not be mounted or held exclusively,
/// because btrfs-check(8) opens it exclusively.
///
/// `false` permits the agent to clear the disk, so an exit code alone is not sufficient: each
/// checker uses the same code when it cannot open the device. e2fsck(8): 0 is no errors, a code
/// with bit 4 is uncorrected errors. xfs_repair(8) with `-n`: 1 after the start of phase 1 is
/// corruption. btrfs-check(8): 1 after the start of opening the filesystem. A swap area is complete
/// if blkid recognizes it, because mkswap writes a single page.
///
/// # Errors
/// The checker could not run, printed no verdict, or the filesystem was mounted after its `mkfs`.
pub fn is_intact(commands: &dyn Commands, filesystem: &str, device: &Path) -> Result<bool, CheckError> {
    let (tool, bad): (_, fn(&CommandOutput) -> bool) = match filesystem {
        "ext4" => (Tool::new("e2fsck").args(["-f", "-n"]), |done| done.code & 4 != 0),
        "xfs" => (Tool::new("xfs_repair").arg("-n"), |done| {
            done.code == 1 && output(done).contains("phase 1 ")
        }),
        "btrfs" => (Tool::new("btrfs").args(["check", "--readonly"]), |done| {
            done.code == 1 && output(done).contains("opening filesystem to check")
        }),
        "swap" => {
            let known = blkid::probe(commands, device).map_err(|doubt| CheckError::Doubt(doubt.reason))?;
            return Ok(known.is_some_and(|known| known.kinds == ["swap"]));
        }
        other => return Err(CheckError::Kind(other.to_owned())),
    };
    let tool = tool.arg(device).deadline(TIMEOUT);
    let done = commands.run(&tool)?;
    if done.success() {
        return Ok(true);
    }
    let output = output(&done);
    if !bad(&done) || DEVICE_ERRORS.iter().any(|words| output.contains(words)) {
        return Err(CheckError::NoJudgement(CommandError::Failed { tool, done }));
    }
    match mounted_since(commands, filesystem, device, &output)? {
        Some(trace) => Err(CheckError::Mounted(device.to_owned(), trace)),
        None => Ok(false),
    }
}

/// Evidence that the filesystem was mounted after its `mkfs`; `None` if there is none. If the
/// superblock cannot be read, that is an error.
///
/// - ext4: dumpe2fs(8) prints the mount count, and the kernel sets `needs_recovery` while it is
///   mounted.
/// - xfs: xfs_repair(8) with `-n` reports changes in the log, which `mkfs` writes empty.
/// - btrfs: the kernel sets the generation of the UUID tree at the first writable mount, and
///   fsync(2) creates a log tree; `mkfs` ends at generation 6 or slightly more.
fn mounted_since(
    commands: &dyn Commands,
    filesystem: &str,
    device: &Path,
    output: &str,
) -> Result<Option<String>, CheckError> {
    let ask = |tool: Tool| -> Result<(String, Tool), CheckError> {
        // The exit code is ignored: dumpe2fs(8) prints all this first and then fails at a journal
        // that `mkfs` had not written yet. The features precede the mount count, which must be
        // present.
        let tool = tool.arg(device);
        Ok((commands.run(&tool)?.stdout, tool))
    };
    let number = |text: &str, tool: &Tool, key: &str| {
        let value = text.lines().find_map(|line| {
            let rest = line.trim_start().strip_prefix(key)?;
            // `log_root` must not match `log_root_level`.
            rest.starts_with([' ', '\t', ':'])
                .then(|| rest.trim_start_matches(':').trim().parse::<u64>().ok())?
        });
        value.ok_or_else(|| CheckError::Doubt(format!("`{tool}` does not print {key:?}")))
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
        "xfs" => Ok(output
            .contains("valuable metadata changes in a log")
            .then(|| "changes in its log".to_owned())),
        "btrfs" => {
            let (text, tool) = ask(Tool::new("btrfs").args(["inspect-internal", "dump-super"]))?;
            for (key, most) in [
                ("uuid_tree_generation", 0),
                ("log_root", 0),
                ("generation", MAX_MKFS_GENERATION),
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

/// The whole output in lower case.
fn output(done: &CommandOutput) -> String {
    format!("{}\n{}", done.stdout, done.stderr).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FakeCommands;

    fn verdict(filesystem: &str, code: i32, stdout: &str, stderr: &str) -> Option<bool> {
        verdict_with(
            filesystem,
            code,
            stdout,
            stderr,
            "Filesystem features: has_journal\nMount count:              0\n\
             generation\t\t6\nlog_root\t\t0\nlog_root_level\t\t0\nuuid_tree_generation\t0\n",
        )
    }

    fn verdict_with(
        filesystem: &str,
        code: i32,
        stdout: &str,
        stderr: &str,
        superblock: &'static str,
    ) -> Option<bool> {
        let (stdout, stderr) = (stdout.to_owned(), stderr.to_owned());
        let fake = FakeCommands::new(move |tool| {
            if ["dumpe2fs", "dump-super"].iter().any(|word| tool.contains(word)) {
                return Some(CommandOutput {
                    code: 0,
                    stdout: superblock.to_owned(),
                    stderr: String::new(),
                });
            }
            Some(CommandOutput {
                code,
                stdout: stdout.clone(),
                stderr: stderr.clone(),
            })
        });
        is_intact(&fake, filesystem, Path::new("/dev/vdb")).ok()
    }

    #[test]
    fn only_a_verdict_of_the_checker_counts() {
        assert_eq!(verdict("ext4", 0, "", "e2fsck 1.47.0"), Some(true));
        assert_eq!(verdict("ext4", 4, "Resize inode not valid.", ""), Some(false));
        assert_eq!(
            verdict("ext4", 12, "Group descriptors look bad...", ""),
            Some(false)
        );
        assert_eq!(
            verdict(
                "ext4",
                8,
                "e2fsck: No such device or address while trying to open",
                ""
            ),
            None
        );
        assert_eq!(
            verdict("ext4", 12, "Error reading block 33 (Input/output error)", ""),
            None
        );
        assert_eq!(
            verdict("xfs", 1, "Phase 1 - find\nbad magic # 0", ""),
            Some(false)
        );
        assert_eq!(
            verdict("xfs", 1, "", "xfs_repair: /dev/vdb contains a mounted filesystem"),
            None
        );
        assert_eq!(verdict("xfs", 1, "", "couldn't initialize XFS library"), None);
        assert_eq!(verdict("xfs", 2, "Phase 1 - find", ""), None);
        let opening = "Opening filesystem to check...";
        assert_eq!(
            verdict("btrfs", 1, opening, "ERROR: cannot open file system"),
            Some(false)
        );
        assert_eq!(
            verdict(
                "btrfs",
                1,
                opening,
                "ERROR: cannot open device '/dev/vdb': Device or resource busy"
            ),
            None
        );
        assert_eq!(
            verdict("btrfs", 1, "", "ERROR: /dev/vdb is currently mounted"),
            None
        );
        assert_eq!(verdict("zfs", 0, "", ""), None);
        // A filesystem that was mounted is not judged by a checker that does not read the log.
        for superblock in [
            "Filesystem features: has_journal needs_recovery\nMount count:              0\n",
            "Filesystem features: has_journal\nMount count:              2\n",
            "Filesystem features: has_journal\n",
        ] {
            assert_eq!(
                verdict_with("ext4", 4, "Free blocks count wrong", "", superblock),
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
                verdict_with("btrfs", 1, opening, "", superblock),
                None,
                "{superblock}"
            );
        }
        let log = "Phase 1 - find\nALERT: The filesystem has valuable metadata changes in a log which is being\nignored";
        assert_eq!(verdict("xfs", 1, log, ""), None);
        let missing = FakeCommands::new(|_| None);
        assert!(is_intact(&missing, "ext4", Path::new("/dev/vdb")).is_err());
    }
}
