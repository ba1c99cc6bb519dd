//! blkid(8), on the device itself, without its cache (`-p`).

use std::{path::Path, time::Duration};

use virtfleet_agent_core::disks::Doubt;

use super::super::partitions::TableEntry;
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
    /// Its label.
    pub label: Option<String>,
    /// Its version.
    pub version: Option<String>,
}

/// Probes the content of a device. `None` if blkid finds nothing; it also finds nothing on a device
/// that it cannot read, so the caller must have read the device.
///
/// # Errors
/// blkid is missing, failed, or printed unexpected output.
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
    let done = run(&[])?;
    match done.code {
        // For a partition blkid prints its table entry even if the partition has no content.
        0 if parse(&done.stdout).is_none() && is_entry_alone(&done.stdout) => Ok(None),
        0 => match parse(&done.stdout) {
            Some(known) => Ok(Some(known)),
            None => Err(unidentified(device, &done)),
        },
        2 => Ok(None),
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
            if known.kinds.len() < 2 {
                known.kinds.push("several".to_owned());
            }
            Ok(Some(known))
        }
        _ => Err(unidentified(device, &done)),
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
