//! dumpe2fs(8) and resize2fs(8).

use std::{path::Path, time::Duration};

use super::SizeError;
use crate::{CommandError, Commands, Done, Tool};

/// Growing writes new group descriptors.
const DEADLINE: Duration = Duration::from_mins(30);

/// The filesystem's size in bytes, by its superblock; mounted or not.
pub fn size(commands: &dyn Commands, device: &Path) -> Result<u64, SizeError> {
    let done = commands.check(&Tool::new("dumpe2fs").arg("-h").arg(device))?;
    size_in(&done.stdout).ok_or_else(|| SizeError::Strange("dumpe2fs", device.to_owned()))
}

fn size_in(text: &str) -> Option<u64> {
    let value = |key: &str| -> Option<u64> {
        text.lines()
            .find_map(|line| line.strip_prefix(key))?
            .trim()
            .parse()
            .ok()
    };
    value("Block count:")?.checked_mul(value("Block size:")?)
}

/// Grows a mounted filesystem to its device. It never shrinks one: without a size it takes what is there, and mounted it only grows.
pub fn grow(commands: &dyn Commands, device: &Path) -> Result<Done, CommandError> {
    commands.check(&Tool::new("resize2fs").arg(device).deadline(DEADLINE))
}

#[cfg(test)]
mod tests {
    #[test]
    fn count_times_size() {
        let text =
            "Filesystem UUID:          x\nBlock count:              71680\nBlock size:               1024\n";
        assert_eq!(super::size_in(text), Some(71_680 * 1024));
        assert_eq!(super::size_in("Block count: 1\n"), None);
    }
}
