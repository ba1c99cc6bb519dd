//! blkid(8), asked of the device itself and not of a cache (`-p`).

use std::{path::Path, time::Duration};

use virtfleet_agent_core::disks::Doubt;

use super::super::partitions::TableEntry;
use crate::{CommandError, Commands, Done, Tool};

/// It reads a few hundred KiB.
const DEADLINE: Duration = Duration::from_mins(1);

/// What it knows on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// By blkid's names, at least one: a filesystem or what else has a superblock first, a partition table after it.
    pub kinds: Vec<String>,
    /// The filesystem's UUID, as it prints it.
    pub uuid: Option<String>,
    /// Its label.
    pub label: Option<String>,
    /// Its version.
    pub version: Option<String>,
}

/// What is on the device; none when blkid finds nothing, which it says of a device that it cannot read, too: whoever calls must have read it.
///
/// Errors: blkid is missing, failed, or said what nobody understands.
pub fn probe(commands: &dyn Commands, device: &Path) -> Result<Option<Known>, Doubt> {
    let run = |more: &[&str]| {
        let tool = Tool::new("blkid")
            .args(["--probe", "--output", "export"])
            .args(more)
            .arg(device)
            .deadline(DEADLINE);
        commands.run(&tool).map_err(|error| Doubt {
            passing: matches!(error, CommandError::Late { .. } | CommandError::Stuck(_)),
            reason: error.to_string(),
        })
    };
    // blkid(8), EXIT STATUS: 2 nothing found or unreadable, 4 usage or other errors, 8 ambivalent.
    let done = run(&[])?;
    match done.code {
        // Of a partition it prints the entry in the table, also when nothing is on it.
        0 if parse(&done.stdout).is_none() && is_entry_alone(&done.stdout) => Ok(None),
        0 => match parse(&done.stdout) {
            Some(known) => Ok(Some(known)),
            None => Err(strange(device, &done)),
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
        _ => Err(strange(device, &done)),
    }
}

/// The entry of a partition in the table on its disk; none when blkid finds no such entry, or the
/// device is no partition.
///
/// # Errors
/// blkid is missing, failed, or did not end in time.
pub(in super::super) fn table_entry(
    commands: &dyn Commands,
    device: &Path,
) -> Result<Option<TableEntry>, Doubt> {
    // One kind of superblock alone is looked for, so that no content makes the result ambivalent.
    let tool = Tool::new("blkid")
        .args(["--probe", "--output", "export", "--match-types", "swap"])
        .arg(device)
        .deadline(DEADLINE);
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
        _ => Err(strange(device, &done)),
    }
}

/// Whether there is nothing but the device's name and the entry in a partition table.
fn is_entry_alone(text: &str) -> bool {
    let mut keys = text
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.split_once('=').map_or(line, |(key, _)| key));
    text.contains("\nPART_ENTRY_UUID=") && keys.all(|key| key == "DEVNAME" || key.starts_with("PART_ENTRY_"))
}

fn strange(device: &Path, done: &Done) -> Doubt {
    let said = done.stderr.lines().next().unwrap_or_default();
    let reason = format!(
        "blkid cannot tell what is on {}: exit code {} {said}",
        device.display(),
        done.code
    );
    Doubt {
        reason,
        passing: false,
    }
}

/// `KEY=value` lines.
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
