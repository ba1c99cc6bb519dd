//! Turns off swap on loop devices of a test. Swap is machine-wide: it does not end with a mount
//! namespace, and it keeps the loop device and the deleted file.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;

use crate::{process::Launch, wait};

/// Timeout of swapoff(8), which reads back what was swapped out; here that is little.
const SWAPOFF_TIMEOUT: Duration = Duration::from_mins(1);
/// Timeout of a swapoff(8) of another test, after ours was refused.
const OTHER_TIMEOUT: Duration = Duration::from_secs(10);

/// Turns off swap on that node (`/dev/loop3`), if it is in use. Two tests may clean up after a
/// third at once: it is no error if another process turns it off meanwhile.
///
/// # Errors
/// `/proc/swaps` cannot be read, or swapoff(8) fails and the node is still in use.
pub fn end(node: &Path) -> Result<()> {
    if !is_used(node)? {
        return Ok(());
    }
    let Err(error) = Launch::new("swapoff").arg(node).text(SWAPOFF_TIMEOUT) else {
        return Ok(());
    };
    // swapoff(2) of another process keeps the entry until all pages are read back.
    let has_ended = || is_used(node).is_ok_and(|used| !used);
    wait::until(OTHER_TIMEOUT, "the end of another swapoff", has_ended).map_err(|_| error)
}

fn is_used(node: &Path) -> Result<bool> {
    Ok(in_use()?.iter().any(|one| one == node))
}

/// Turns off swap on loop devices whose files are in an abandoned folder; `is_abandoned` gets the
/// path of the file.
///
/// # Errors
/// As for [`end`].
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

/// The nodes in use as swap, from `/proc/swaps` (proc_swaps(5)).
fn in_use() -> Result<Vec<PathBuf>> {
    Ok(nodes(&fs::read_to_string("/proc/swaps")?))
}

/// A path below a mount whose namespace has ended is relative to that mount: `/loop7` for
/// `/dev/loop7`.
fn nodes(swaps: &str) -> Vec<PathBuf> {
    let paths = swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_ascii_whitespace().next());
    paths
        .map(|path| match path.strip_prefix("/loop") {
            Some(number) => PathBuf::from(format!("/dev/loop{number}")),
            None => PathBuf::from(path),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_a_namespace_that_has_ended_is_still_the_device() {
        let swaps = "Filename Type Size Used Priority\n/loop7 partition 71684 960 -2\n\
                     /dev/loop1 partition 1 0 -3\n/swapfile file 1 0 -4\n";
        let expected = ["/dev/loop7", "/dev/loop1", "/swapfile"].map(PathBuf::from);
        assert_eq!(nodes(swaps), expected);
    }
}
