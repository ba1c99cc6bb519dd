//! Scans the folder for files and their changes: names and metadata only.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::scope::{is_hidden, is_manifest};

/// Maximum depth of folders below the manifest folder.
const MAX_DEPTH: usize = 8;

/// Metadata that changes whenever a file's content may have changed: inode, size, time of
/// modification or of status change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) size: u64,
    inode: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
}

#[derive(Debug, Default)]
pub(super) struct FolderScan {
    /// Manifests by path relative to the folder.
    pub(super) files: BTreeMap<PathBuf, Result<Stamp, String>>,
    /// Folders, including the manifest folder itself (empty path).
    pub(super) folders: BTreeSet<PathBuf>,
    /// Folders outside that contain targets of symlinks.
    pub(super) links: BTreeSet<PathBuf>,
    /// Folders that could not be listed: known files below them are not considered deleted.
    pub(super) unreadable: BTreeMap<PathBuf, String>,
}

/// Scans all manifests. Symlinks are followed, for mounted ConfigMaps; hidden names are ignored, so
/// that a ConfigMap's files under `..data` are found once.
///
/// # Errors
/// The folder itself cannot be listed.
pub(super) fn scan(folder: &Path) -> io::Result<FolderScan> {
    let mut result = FolderScan::default();
    let entries = fs::read_dir(folder)?;
    list(folder, Path::new(""), entries, 0, &mut result);
    Ok(result)
}

fn list(folder: &Path, below: &Path, entries: fs::ReadDir, depth: usize, result: &mut FolderScan) {
    result.folders.insert(below.to_owned());
    for entry in entries {
        let name = match entry {
            Ok(entry) => entry.file_name(),
            Err(error) => {
                result.unreadable.insert(below.to_owned(), error.to_string());
                continue;
            }
        };
        let Some(text) = name.to_str().filter(|name| !is_hidden(name)) else {
            continue;
        };
        let path = below.join(text);
        if is_symlink(&folder.join(&path))
            && let Some(parent) = fs::canonicalize(folder.join(&path))
                .ok()
                .as_deref()
                .and_then(Path::parent)
        {
            result.links.insert(parent.to_owned());
        }
        match fs::metadata(folder.join(&path)) {
            Ok(metadata) if metadata.is_dir() => {
                if depth == MAX_DEPTH {
                    result
                        .unreadable
                        .insert(path, format!("more than {MAX_DEPTH} folders deep"));
                    continue;
                }
                match fs::read_dir(folder.join(&path)) {
                    Ok(entries) => list(folder, &path, entries, depth + 1, result),
                    Err(error) => drop(result.unreadable.insert(path, error.to_string())),
                }
            }
            _ if !is_manifest(text) => {}
            Ok(metadata) if metadata.is_file() => {
                result.files.insert(path, Ok(stamp(&metadata)));
            }
            Ok(_) => drop(result.files.insert(path, Err("not a regular file".to_owned()))),
            // Deleted between the listing and now.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_symlink(&folder.join(&path)) => {}
            Err(error) => drop(result.files.insert(path, Err(error.to_string()))),
        }
    }
}

/// A dangling symlink is an unreadable file, not a deleted one.
fn is_symlink(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
}

pub(super) fn stamp(metadata: &fs::Metadata) -> Stamp {
    Stamp {
        size: metadata.size(),
        inode: (metadata.dev(), metadata.ino()),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    }
}
