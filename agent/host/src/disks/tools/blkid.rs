//! blkid(8), on the device itself, without its cache (`-p`).

use std::{path::Path, time::Duration};

use virtfleet_agent_core::disks::Doubt;

use super::{super::partitions::TableEntry, wipefs};
use crate::{CommandError, CommandOutput, Commands, Tool};

/// Generous: blkid reads a few hundred KiB.
const TIMEOUT: Duration = Duration::from_mins(1);

/// What blkid finds on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// At least one kind in blkid's terms: a filesystem or another superblock first, then a
    /// partition table.
    pub kinds: Vec<String>,
    /// The filesystem's UUID as blkid prints it.
    pub uuid: Option<String>,
    pub label: Option<String>,
    pub version: Option<String>,
}

/// Probes the content of a device. `None` if blkid finds nothing; it also finds nothing on a device
/// that it cannot read, so the caller must have read the device.
///
/// # Errors
/// blkid or wipefs is missing, failed, or printed unexpected output.
pub fn probe(commands: &dyn Commands, device: &Path) -> Result<Option<Known>, Doubt> {
    let run = |more: &[&str]| {
        let tool = Tool::new("blkid")
            .args(["--probe", "--output", "export"])
            .args(more)
            .arg(device)
            .deadline(TIMEOUT);
        commands.run(&tool).map_err(|error| Doubt {
            passing: matches!(error, CommandError::Late { .. } | CommandError::Stuck(_)),
            reason: error.to_string(),
        })
    };
    // blkid(8), EXIT STATUS: 2 nothing found or unreadable, 4 usage or other errors, 8 ambivalent.
    // util-linux 2.41.5 returns 2 also if the content is ambivalent.
    let done = run(&[])?;
    match done.code {
        // For a partition blkid prints its table entry even if the partition has no content.
        0 if parse(&done.stdout).is_none() && is_entry_alone(&done.stdout) => listed(commands, device),
        0 => match parse(&done.stdout) {
            Some(known) => Ok(Some(known)),
            None => Err(unidentified(device, &done)),
        },
        2 => listed(commands, device),
        8 => {
            let mut known = Known::default();
            for usage in ["filesystem", "raid", "crypto", "other"] {
                let done = run(&["--usages", usage])?;
                match parse(&done.stdout) {
                    Some(one) if done.code == 0 => known.kinds.extend(one.kinds),
                    _ if done.code == 8 => known.kinds.push(format!("several ({usage})")),
                    _ => {}
                }
            }
            known.kinds.dedup();
            Ok(Some(ambivalent(known.kinds)))
        }
        _ => Err(unidentified(device, &done)),
    }
}

/// What wipefs(8) lists, where blkid names nothing.
fn listed(commands: &dyn Commands, device: &Path) -> Result<Option<Known>, Doubt> {
    let signatures = wipefs::signatures(commands, device, TIMEOUT).map_err(|error| Doubt {
        passing: error.is_passing(),
        reason: error.to_string(),
    })?;
    let mut kinds: Vec<String> = Vec::new();
    for signature in signatures {
        if !kinds.contains(&signature.kind) {
            kinds.push(signature.kind);
        }
    }
    Ok((!kinds.is_empty()).then(|| ambivalent(kinds)))
}

/// At least two kinds, none of which identifies the content.
fn ambivalent(mut kinds: Vec<String>) -> Known {
    if kinds.len() < 2 {
        kinds.push("several".to_owned());
    }
    Known {
        kinds,
        ..Known::default()
    }
}

/// The table entry of a partition. `None` if blkid finds no such entry or the device is not a
/// partition.
///
/// # Errors
/// blkid is missing, failed, or passed its deadline.
pub(in super::super) fn table_entry(
    commands: &dyn Commands,
    device: &Path,
) -> Result<Option<TableEntry>, Doubt> {
    // Only one kind of superblock is searched, so that no content makes the result ambivalent.
    let tool = Tool::new("blkid")
        .args(["--probe", "--output", "export", "--match-types", "swap"])
        .arg(device)
        .deadline(TIMEOUT);
    let done = commands.run(&tool).map_err(|error| Doubt {
        passing: matches!(error, CommandError::Late { .. } | CommandError::Stuck(_)),
        reason: error.to_string(),
    })?;
    match done.code {
        0 => {
            let lines = done.stdout.lines().filter_map(|line| line.split_once('='));
            Ok(TableEntry::parse(lines.filter_map(|(key, value)| {
                Some((key.strip_prefix("PART_ENTRY_")?, value))
            })))
        }
        2 => Ok(None),
        _ => Err(unidentified(device, &done)),
    }
}

/// True if the output has only the device's name and the partition table entry.
fn is_entry_alone(text: &str) -> bool {
    let mut keys = text
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.split_once('=').map_or(line, |(key, _)| key));
    text.contains("\nPART_ENTRY_UUID=") && keys.all(|key| key == "DEVNAME" || key.starts_with("PART_ENTRY_"))
}

fn unidentified(device: &Path, done: &CommandOutput) -> Doubt {
    let message = done.stderr.lines().next().unwrap_or_default();
    let reason = format!(
        "blkid cannot identify the content of {}: exit code {} {message}",
        device.display(),
        done.code
    );
    Doubt {
        reason,
        passing: false,
    }
}

/// Parses `KEY=value` lines.
fn parse(text: &str) -> Option<Known> {
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value.to_owned())
            .filter(|value| !value.is_empty())
    };
    let kinds: Vec<String> = [value("TYPE"), value("PTTYPE")].into_iter().flatten().collect();
    (!kinds.is_empty()).then(|| Known {
        kinds,
        uuid: value("UUID"),
        label: value("LABEL"),
        version: value("VERSION"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FakeCommands;

    /// blkid's answer, and what wipefs prints.
    fn probed(code: i32, stdout: &'static str, listed: Option<&'static str>) -> Result<Option<Known>, Doubt> {
        let commands = FakeCommands::new(move |line| {
            let (code, stdout) = if line.starts_with("wipefs") {
                (0, listed?)
            } else {
                (code, stdout)
            };
            Some(CommandOutput {
                code,
                stdout: stdout.to_owned(),
                ..CommandOutput::default()
            })
        });
        probe(&commands, Path::new("/dev/vdb"))
    }

    #[test]
    fn what_blkid_keeps_to_itself_is_listed() {
        let entry = "DEVNAME=/dev/vdb1\nPART_ENTRY_SCHEME=gpt\nPART_ENTRY_UUID=1\n";
        for (code, stdout) in [(2, ""), (0, entry)] {
            assert_eq!(probed(code, stdout, Some("")).unwrap(), None);
            for (listed, kinds) in [
                ("0x0 xfs\n0x8001 iso9660\n0x9001 iso9660\n", ["xfs", "iso9660"]),
                ("0x438 ext4\n", ["ext4", "several"]),
            ] {
                let known = probed(code, stdout, Some(listed)).unwrap().unwrap();
                assert_eq!(known.kinds, kinds);
                assert_eq!(known.uuid, None);
            }
            for unknown in [None, Some("xfs at 0")] {
                probed(code, stdout, unknown).unwrap_err();
            }
        }
    }
}
