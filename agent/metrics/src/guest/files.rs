//! Small files and directories, for all collectors of this group.

use std::path::Path;

use virtfleet_agent_host::{read_directory, read_once, value_once};

/// Maximum size of a file in bytes.
const MAX_FILE_BYTES: usize = 64 << 10;
/// Maximum number of entries of a directory.
const MAX_ENTRIES: usize = 4096;

/// The text of a small file. `None` if it is missing or unreadable.
pub(super) fn text<'buffer>(path: &Path, buffer: &'buffer mut Vec<u8>) -> Option<&'buffer str> {
    str::from_utf8(read_once(path, buffer, MAX_FILE_BYTES).ok()?).ok()
}

/// The only number of a small file.
pub(super) fn number(path: &Path, buffer: &mut Vec<u8>) -> Option<u64> {
    value_once(path, buffer)
}

/// Names in a directory, sorted. Empty if it is missing.
pub(super) fn names(path: &Path) -> Vec<String> {
    let Ok(entries) = read_directory(path) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .take(MAX_ENTRIES)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

/// Subdirectories of a directory, sorted.
pub(super) fn folders(path: &Path) -> Vec<String> {
    let Ok(entries) = read_directory(path) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .take(MAX_ENTRIES)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}
