//! What a path is, without reading its content.

use std::{
    fs::{self, ReadDir},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Lists a directory. The caller bounds how many entries it takes.
///
/// # Errors
/// The directory is missing or cannot be listed.
pub fn read_directory(path: &Path) -> io::Result<ReadDir> {
    fs::read_dir(path)
}

/// True if `path` exists; symbolic links are followed.
pub fn exists(path: &Path) -> bool {
    path.exists()
}

/// Like [`exists`], but an unknown state is an error.
///
/// # Errors
/// The path cannot be inspected, e.g. because a parent directory cannot be searched.
pub fn try_exists(path: &Path) -> io::Result<bool> {
    path.try_exists()
}

/// Checks that `path` exists; symbolic links are followed.
///
/// # Errors
/// The kernel's error, e.g. that it does not exist.
pub fn require(path: &Path) -> io::Result<()> {
    fs::metadata(path).map(drop)
}

/// True if `path` itself exists, even as a dangling symbolic link.
pub fn is_present(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// True if `path` is a directory or a link to one.
pub fn is_directory(path: &Path) -> bool {
    path.is_dir()
}

/// Modification time in seconds since 1970. `None` if the path cannot be inspected.
pub fn modified_seconds(path: &Path) -> Option<i64> {
    fs::metadata(path).ok().map(|metadata| metadata.mtime())
}

/// The path with all symbolic links resolved. `None` if it does not exist.
pub fn real_path(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok()
}

/// Last component of a symbolic link's target, e.g. a device's driver.
pub fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}
