//! Swap on loop devices ends with its test. The kernel knows swap for the whole machine: it does not end with a mount
//! namespace, and it keeps the loop device and the deleted file behind it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;

use crate::process::Launch;

/// Swapping out reads back what is there, which is little.
const LIMIT: Duration = Duration::from_mins(1);

/// Has the kernel no longer swap to that node (`/dev/loop3`). Nothing happens where it does not.
///
/// # Errors
/// `/proc/swaps` cannot be read, or swapoff(8) fails.
pub fn end(node: &Path) -> Result<()> {
    if in_use()?.iter().any(|one| one == node) {
        Launch::new("swapoff").arg(node).text(LIMIT)?;
    }
    Ok(())
}

/// Ends the swap on loop devices whose files lie in a folder for which this holds: it gets the path of the file.
///
/// # Errors
/// As of [`end`].
pub fn end_where(is_abandoned: impl Fn(&Path) -> bool) -> Result<()> {
    for node in in_use()? {
        let name = node.file_name().unwrap_or_default();
        let file = Path::new("/sys/block").join(name).join("loop/backing_file");
        if fs::read_to_string(file).is_ok_and(|file| is_abandoned(Path::new(file.trim_end()))) {
            end(&node)?;
        }
    }
    Ok(())
}

/// Nodes that the kernel swaps to, from `/proc/swaps` (proc_swaps(5)).
fn in_use() -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string("/proc/swaps")?;
    let nodes = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_ascii_whitespace().next());
    Ok(nodes.map(PathBuf::from).collect())
}
