//! wipefs(8), which here only lists: unlike blkid(8), all signatures on a device with their
//! offsets.

use std::{path::Path, time::Duration};

use virtfleet_agent_core::disks::Signature;

use crate::{CommandError, Commands, Tool};

/// Why the signatures on a device are unknown.
#[derive(Debug, thiserror::Error)]
pub enum SignaturesError {
    /// wipefs failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// wipefs printed unexpected output.
    #[error("`{tool}` printed {line:?} in place of an offset and a kind")]
    Strange { tool: Tool, line: String },
}

impl SignaturesError {
    /// Whether another attempt may succeed.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Command(CommandError::Late { .. } | CommandError::Stuck(_))
        )
    }
}

/// All signatures on a device, of superblocks and of partition tables.
///
/// # Errors
/// wipefs is missing, failed, passed the `deadline`, or printed unexpected output.
pub fn signatures(
    commands: &dyn Commands,
    device: &Path,
    deadline: Duration,
) -> Result<Vec<Signature>, SignaturesError> {
    let tool = Tool::new("wipefs")
        .args(["--noheadings", "--output", "OFFSET,TYPE"])
        .arg(device)
        .deadline(deadline);
    let done = commands.check(&tool)?;
    let lines = done.stdout.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            parse(line).ok_or_else(|| SignaturesError::Strange {
                tool: tool.clone(),
                line: line.to_owned(),
            })
        })
        .collect()
}

/// Parses `0x8001     iso9660`.
fn parse(line: &str) -> Option<Signature> {
    let mut words = line.split_ascii_whitespace();
    let (offset, kind) = (words.next()?, words.next()?);
    let offset = u64::from_str_radix(offset.strip_prefix("0x")?, 16).ok()?;
    words.next().is_none().then(|| Signature {
        offset,
        kind: kind.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_an_offset_and_a_kind() {
        let parsed = parse("0x18fa7000 zfs_member ").unwrap();
        assert_eq!((parsed.offset, parsed.kind.as_str()), (0x18fa_7000, "zfs_member"));
        for wrong in ["", "0x0", "xfs 0x0", "32769 iso9660", "0x0 xfs and", "0x xfs"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
