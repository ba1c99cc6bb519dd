//! Temporary folders whose names contain the process id of the test, and folders in memory for
//! files that a test syncs or removes repeatedly, if no test depends on the storage.

use std::{env, io, path::Path, process};

use anyhow::{Context as _, Result};
use nix::sys::statvfs::statvfs;

/// The usual tmpfs.
const MEMORY: &str = "/dev/shm";
/// Minimum free space there in bytes, several times what a test writes.
const ENOUGH: u64 = 4 << 30;

/// Creates a temporary folder with a name that contains this process's id. If this process is
/// killed, `tests/parts/leftovers.sh` recognises and removes the folder, and what uses its files.
///
/// # Errors
/// The folder cannot be created.
pub fn marked() -> io::Result<tempfile::TempDir> {
    marked_in(&env::temp_dir())
}

fn marked_in(parent: &Path) -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix(&format!("virtfleet-test-{}-", process::id()))
        .tempdir_in(parent)
}

/// Creates a folder as [`marked`] does, in memory if enough is free. There a sync costs nothing and
/// does not wait for writes of other tests, and a removal does not wait for a disk to discard the
/// freed blocks.
///
/// # Errors
/// The folder cannot be created.
pub fn folder() -> Result<tempfile::TempDir> {
    let memory = Path::new(MEMORY);
    let folder = if has_space(memory) && has_memory() {
        marked_in(memory)
    } else {
        marked()
    };
    folder.context("a folder for a test")
}

fn has_space(path: &Path) -> bool {
    statvfs(path).is_ok_and(|about| about.blocks_available() * about.fragment_size() >= ENOUGH)
}

/// Whether that much memory is free, too: the size of a tmpfs is only a limit.
fn has_memory() -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = lines
        .next()
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.is_some_and(|kib| kib << 10 >= 2 * ENOUGH)
}
