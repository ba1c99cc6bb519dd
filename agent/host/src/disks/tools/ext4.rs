//! dumpe2fs(8) and resize2fs(8).

use std::{path::Path, time::Duration};

use super::SizeError;
use crate::{CommandError, CommandOutput, Commands, Tool};

/// Growing writes new group descriptors.
const TIMEOUT: Duration = Duration::from_mins(30);

/// The filesystem's size in bytes from its superblock; it may be mounted.
///
/// # Errors
/// dumpe2fs(8) failed or printed unexpected output.
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

/// Grows a mounted filesystem to the size of its device. Never shrinks: without a size resize2fs
/// uses the whole device, and a mounted filesystem can only grow.
///
/// # Errors
/// resize2fs(8) failed.
pub fn grow(commands: &dyn Commands, device: &Path) -> Result<CommandOutput, CommandError> {
    commands.check(&Tool::new("resize2fs").arg(device).deadline(TIMEOUT))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_size_is_block_count_times_block_size() {
        let text =
            "Filesystem UUID:          x\nBlock count:              71680\nBlock size:               1024\n";
        assert_eq!(super::size_in(text), Some(71_680 * 1024));
        assert_eq!(super::size_in("Block count: 1\n"), None);
    }
}
