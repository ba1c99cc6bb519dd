//! What a path is, without reading its content.

use std::{
    fs::{self, File, ReadDir},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Lists a directory. The caller bounds how many entries it takes.
///
/// # Errors
/// The directory is missing or may not be listed.
pub fn read_directory(path: &Path) -> io::Result<ReadDir> {
    fs::read_dir(path)
}

/// Whether there is something behind `path`; symbolic links are followed.
pub fn exists(path: &Path) -> bool {
    path.exists()
}

/// The same, with the reason why it is unknown.
///
/// # Errors
/// The path cannot be inspected, e.g. because a directory above it may not be searched.
pub fn try_exists(path: &Path) -> io::Result<bool> {
    path.try_exists()
}

/// Whether `path` itself is there, also as a symbolic link that leads nowhere.
pub fn is_present(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Whether `path` leads to a directory.
pub fn is_directory(path: &Path) -> bool {
    path.is_dir()
}

/// Whether this process can open `path` for reading.
pub fn is_readable(path: &Path) -> bool {
    File::open(path).is_ok()
}

/// Time of the last modification in seconds since 1970; none if the path cannot be inspected.
pub fn modified_seconds(path: &Path) -> Option<i64> {
    fs::metadata(path).ok().map(|metadata| metadata.mtime())
}

/// The path with all symbolic links resolved; none if there is nothing behind it.
pub fn real_path(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok()
}

/// The last part of what a symbolic link points to, e.g. a device's driver.
pub fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}
