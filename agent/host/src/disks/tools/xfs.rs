//! xfs_info(8) and xfs_growfs(8).

use std::{path::Path, time::Duration};

use super::SizeError;
use crate::{CommandError, CommandOutput, Commands, Tool};

/// Growing writes new allocation groups.
const TIMEOUT: Duration = Duration::from_mins(10);

/// The filesystem's size in bytes. `place` is its mount point, or its device if it is not mounted.
///
/// # Errors
/// xfs_info(8) failed or printed unexpected output.
pub fn size(commands: &dyn Commands, place: &Path) -> Result<u64, SizeError> {
    let done = commands.check(&Tool::new("xfs_info").arg(place))?;
    size_in(&done.stdout).ok_or_else(|| SizeError::Strange("xfs_info", place.to_owned()))
}

/// Parses `data  =        bsize=4096   blocks=76800, imaxpct=25`.
fn size_in(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("data "))?;
    let value = |key: &str| -> Option<u64> {
        let word = line.split([' ', ',']).find_map(|word| word.strip_prefix(key))?;
        word.parse().ok()
    };
    value("blocks=")?.checked_mul(value("bsize=")?)
}

/// Grows a mounted filesystem to the size of its device. Never shrinks: without a size xfs_growfs
/// uses the whole device.
///
/// # Errors
/// xfs_growfs(8) failed.
pub fn grow(commands: &dyn Commands, place: &Path) -> Result<CommandOutput, CommandError> {
    commands.check(&Tool::new("xfs_growfs").arg("-d").arg(place).deadline(TIMEOUT))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_size_is_blocks_times_block_size() {
        let text = "meta-data=/dev/loop0 isize=512    agcount=4, agsize=19200 blks\n\
                    data     =                       bsize=4096   blocks=76800, imaxpct=25\n";
        assert_eq!(super::size_in(text), Some(76_800 * 4096));
        assert_eq!(
            super::size_in("log      =internal log bsize=4096   blocks=16384"),
            None
        );
    }
}
