//! Folders for files that a test syncs or removes again and again, where no test depends on what they are stored on.

use std::path::Path;

use anyhow::{Context as _, Result};
use nix::sys::statvfs::statvfs;

/// Where Linux has memory as a filesystem.
const MEMORY: &str = "/dev/shm";
/// Space that must be free there, several times what a test writes.
const ENOUGH: u64 = 4 << 30;

/// A new folder, in memory where there is plenty of it: a sync costs nothing there, and waits for no other test's writes; nor
/// does a removal wait for a disk that discards what is freed.
///
/// # Errors
/// The folder cannot be made.
pub fn folder() -> Result<tempfile::TempDir> {
    let memory = Path::new(MEMORY);
    let folder = if has_space(memory) && has_memory() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    folder.context("a folder for a test")
}

fn has_space(path: &Path) -> bool {
    statvfs(path).is_ok_and(|about| about.blocks_available() * about.fragment_size() >= ENOUGH)
}

/// Whether so much memory is free, too: the size of such a filesystem is only a limit.
fn has_memory() -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = lines
        .next()
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.is_some_and(|kib| kib << 10 >= 2 * ENOUGH)
}
