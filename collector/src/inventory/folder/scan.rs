//! What files the folder holds, and whether each has changed: names and metadata only.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::place::{is_hidden, is_manifest};

/// How deep folders are followed below the manifest folder.
const MAX_DEPTH: usize = 8;

/// What changes whenever a file's content may have: another inode, size, or time of modification or status change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) size: u64,
    inode: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
}

/// One look at the folder.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Manifests by path relative to the folder.
    pub(super) files: BTreeMap<PathBuf, Result<Stamp, String>>,
    /// Folders below, the folder itself included (empty path).
    pub(super) folders: BTreeSet<PathBuf>,
    /// Folders elsewhere that hold what symlinks point to.
    pub(super) links: BTreeSet<PathBuf>,
    /// Folders that could not be listed: what was known below them is not gone.
    pub(super) unreadable: BTreeMap<PathBuf, String>,
}

/// Looks at every manifest. Symlinks are followed, as mounted ConfigMaps need it; hidden names are passed by, so that what a
/// ConfigMap holds under `..data` is seen once. Errors: the folder itself cannot be listed.
pub(super) fn look(folder: &Path) -> io::Result<Look> {
    let mut look = Look::default();
    let entries = fs::read_dir(folder)?;
    list(folder, Path::new(""), entries, 0, &mut look);
    Ok(look)
}

fn list(folder: &Path, below: &Path, entries: fs::ReadDir, depth: usize, look: &mut Look) {
    look.folders.insert(below.to_owned());
    for entry in entries {
        let name = match entry {
            Ok(entry) => entry.file_name(),
            Err(error) => {
                look.unreadable.insert(below.to_owned(), error.to_string());
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
            look.links.insert(parent.to_owned());
        }
        match fs::metadata(folder.join(&path)) {
            Ok(metadata) if metadata.is_dir() => {
                if depth == MAX_DEPTH {
                    look.unreadable
                        .insert(path, format!("more than {MAX_DEPTH} folders deep"));
                    continue;
                }
                match fs::read_dir(folder.join(&path)) {
                    Ok(entries) => list(folder, &path, entries, depth + 1, look),
                    Err(error) => drop(look.unreadable.insert(path, error.to_string())),
                }
            }
            _ if !is_manifest(text) => {}
            Ok(metadata) if metadata.is_file() => {
                look.files.insert(path, Ok(stamp(&metadata)));
            }
            Ok(_) => drop(look.files.insert(path, Err("not a regular file".to_owned()))),
            // It went between the listing and now.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_symlink(&folder.join(&path)) => {}
            Err(error) => drop(look.files.insert(path, Err(error.to_string()))),
        }
    }
}

/// A dangling link is a file that cannot be read, not a file that is gone.
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
