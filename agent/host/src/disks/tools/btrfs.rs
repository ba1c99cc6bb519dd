//! btrfs(8).

use std::{path::Path, time::Duration};

use super::SizeError;
use crate::{CommandError, CommandOutput, Commands, Tool};

/// The resize only writes a number, but a transaction may have to end first.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Bytes of its device that the filesystem uses, from that device's superblock.
///
/// # Errors
/// btrfs(8) failed or printed unexpected output.
pub fn size(commands: &dyn Commands, device: &Path) -> Result<u64, SizeError> {
    let done = commands.check(
        &Tool::new("btrfs")
            .args(["inspect-internal", "dump-super"])
            .arg(device),
    )?;
    size_in(&done.stdout)
        .ok_or_else(|| SizeError::Strange("btrfs inspect-internal dump-super", device.to_owned()))
}

/// Parses `dev_item.total_bytes  314572800`, the size on this device; `total_bytes` is the sum of
/// all devices.
fn size_in(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("dev_item.total_bytes"))?
        .trim()
        .parse()
        .ok()
}

/// Grows the mounted filesystem to the size of its device; the agent creates only filesystems with
/// one device.
///
/// # Errors
/// btrfs(8) failed.
pub fn grow(commands: &dyn Commands, place: &Path) -> Result<CommandOutput, CommandError> {
    let tool = Tool::new("btrfs")
        .args(["filesystem", "resize", "max"])
        .arg(place);
    commands.check(&tool.deadline(TIMEOUT))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_size_is_that_of_the_device() {
        let text = "total_bytes\t\t1000\ndev_item.total_bytes\t500\n";
        assert_eq!(super::size_in(text), Some(500));
    }
}
