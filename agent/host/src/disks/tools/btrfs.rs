//! btrfs(8).

use std::{path::Path, time::Duration};

use super::SizeError;
use crate::{CommandError, Commands, Done, Tool};

/// It only writes a number; a transaction may have to end first.
const DEADLINE: Duration = Duration::from_mins(10);

/// How much of its device the filesystem uses, in bytes, by the superblock of that device.
pub fn size(commands: &dyn Commands, device: &Path) -> Result<u64, SizeError> {
    let done = commands.check(
        &Tool::new("btrfs")
            .args(["inspect-internal", "dump-super"])
            .arg(device),
    )?;
    size_in(&done.stdout)
        .ok_or_else(|| SizeError::Strange("btrfs inspect-internal dump-super", device.to_owned()))
}

/// The line `dev_item.total_bytes  314572800`: that of this device, where `total_bytes` is of all.
fn size_in(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("dev_item.total_bytes"))?
        .trim()
        .parse()
        .ok()
}

/// Grows the mounted filesystem to its first device. It has one: we make no other.
pub fn grow(commands: &dyn Commands, place: &Path) -> Result<Done, CommandError> {
    let tool = Tool::new("btrfs")
        .args(["filesystem", "resize", "max"])
        .arg(place);
    commands.check(&tool.deadline(DEADLINE))
}

#[cfg(test)]
mod tests {
    #[test]
    fn of_the_device() {
        let text = "total_bytes\t\t1000\ndev_item.total_bytes\t500\n";
        assert_eq!(super::size_in(text), Some(500));
    }
}
