//! Whole files and links, as the installer compares them.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Reads a whole file, of any size.
///
/// # Errors
/// The kernel's error.
pub fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// True for a regular file, not a link, with these permission bits and this content.
pub fn has_content(path: &Path, mode: u32, content: &[u8]) -> bool {
    is_plain(path, mode) && fs::read(path).is_ok_and(|found| found == content)
}

/// True for a regular file, not a link, with these permission bits.
pub fn is_plain(path: &Path, mode: u32) -> bool {
    path.symlink_metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o7777 == mode)
}

/// The target of a symbolic link. `None` for anything else.
pub fn link_target(path: &Path) -> Option<PathBuf> {
    fs::read_link(path).ok()
}
