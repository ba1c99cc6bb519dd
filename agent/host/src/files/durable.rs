//! Durable links and removals for the installer: each effect is synced when the call returns.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// Atomically replaces `path` (not a directory) by a symbolic link to `target`.
///
/// # Errors
/// The link cannot be created, renamed or synced.
pub fn link_atomic(path: &Path, target: &str) -> io::Result<()> {
    let folder = parent(path);
    fs::create_dir_all(&folder)?;
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let fresh = folder.join(format!(".virtfleet-{name}"));
    remove_if_there(&fresh)?;
    symlink(target, &fresh)?;
    fs::rename(&fresh, path)?;
    sync(&folder)
}

/// Removes a file or link. Returns false if there was none.
///
/// # Errors
/// The file cannot be removed, or the directory cannot be synced.
pub fn remove_durably(path: &Path) -> io::Result<bool> {
    let was = remove_if_there(path)?;
    if was {
        sync(&parent(path))?;
    }
    Ok(was)
}

fn remove_if_there(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("/")).to_owned()
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_replaced_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/link");
        for target in ["../one", "../two"] {
            link_atomic(&path, target).unwrap();
            assert_eq!(fs::read_link(&path).unwrap(), Path::new(target));
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert!(remove_durably(&path).unwrap());
        assert!(!remove_durably(&path).unwrap());
        let file = dir.path().join("abc");
        fs::write(&file, "abc").unwrap();
        assert_eq!(
            virtfleet_runtime::digest::sha256_file(&file).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
