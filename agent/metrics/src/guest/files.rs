//! Small files and folders, for all collectors of this room.

use std::path::Path;

use virtfleet_agent_host::{read_directory, slurp};

/// A file of a few lines.
const LIMIT: usize = 64 << 10;
/// Entries of a folder at the most.
const MOST: usize = 4096;

/// The text of a small file; none when it is not there or cannot be read.
pub(super) fn text<'buffer>(path: &Path, buffer: &'buffer mut Vec<u8>) -> Option<&'buffer str> {
    str::from_utf8(slurp(path, buffer, LIMIT).ok()?).ok()
}

/// The one number of a small file.
pub(super) fn number(path: &Path, buffer: &mut Vec<u8>) -> Option<u64> {
    text(path, buffer)?.trim().parse().ok()
}

/// The names in a folder, sorted; none when it is not there.
pub(super) fn names(path: &Path) -> Vec<String> {
    let Ok(entries) = read_directory(path) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .take(MOST)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

/// The folders in a folder, sorted.
pub(super) fn folders(path: &Path) -> Vec<String> {
    let Ok(entries) = read_directory(path) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .take(MOST)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}
