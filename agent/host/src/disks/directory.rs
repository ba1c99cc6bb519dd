//! Directories at the top of a shared filesystem: their state, and atomic replacement with a
//! complete one.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use crate::entries_in;

/// Why such a directory could not be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {}", path.display())]
pub struct DirectoryError {
    step: &'static str,
    path: PathBuf,
    source: io::Error,
}

fn at(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError + use<> {
    let path = path.to_owned();
    move |source| DirectoryError { step, path, source }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryState {
    /// Nothing at this path.
    Absent,
    /// A directory without entries.
    Empty,
    Filled,
}

/// Inspects `path`.
///
/// # Errors
/// It cannot be read or is not a directory. Symbolic links are not followed.
pub fn directory_state(path: &Path) -> Result<DirectoryState, DirectoryError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(DirectoryState::Absent),
        Err(error) => Err(at("read", path)(error)),
        Ok(metadata) if !metadata.is_dir() => Err(at("use", path)(io::ErrorKind::NotADirectory.into())),
        Ok(_) => match entries_in(path, 1).map_err(at("read", path))? {
            0 => Ok(DirectoryState::Empty),
            _ => Ok(DirectoryState::Filled),
        },
    }
}

/// Removes what is at `path` and creates an empty directory with mode 0700.
///
/// # Errors
/// The old content cannot be removed, or the directory cannot be created.
pub fn recreate_directory(path: &Path) -> Result<(), DirectoryError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at("remove", path)(error)),
        _ => {}
    }
    DirBuilder::new()
        .mode(0o700)
        .create(path)
        .map_err(at("make", path))
}

/// Renames the directory `from` to `to`, which must be absent or an empty directory. Durable when
/// the call returns. rename(2) is atomic: `to` is never incomplete.
///
/// # Errors
/// The directory cannot be renamed or synced.
pub fn rename_directory(from: &Path, to: &Path) -> Result<(), DirectoryError> {
    let sync = |path: &Path| {
        File::open(path)
            .and_then(|folder| folder.sync_all())
            .map_err(at("sync", path))
    };
    sync(from)?;
    fs::rename(from, to).map_err(at("rename to", to))?;
    sync(to.parent().unwrap_or(Path::new("/")))
}

/// The first entry of `folder` by name that `known` rejects. ext4's `lost+found` is ignored.
///
/// # Errors
/// The directory cannot be read.
pub fn unexpected_entry(
    folder: &Path,
    known: impl Fn(&str) -> bool,
) -> Result<Option<String>, DirectoryError> {
    let mut strangers = Vec::new();
    for entry in fs::read_dir(folder).map_err(at("read", folder))? {
        let name = entry.map_err(at("read", folder))?.file_name();
        let name = name.to_string_lossy().into_owned();
        if name != "lost+found" && !known(&name) {
            strangers.push(name);
        }
    }
    Ok(strangers.into_iter().min())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_directory_replaces_only_an_absent_or_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let (fresh, final_) = (dir.path().join("fresh"), dir.path().join("final"));
        let state = || directory_state(&final_).unwrap();
        for expected in [DirectoryState::Absent, DirectoryState::Empty] {
            assert_eq!(state(), expected);
            fs::create_dir_all(fresh.join("left")).unwrap();
            recreate_directory(&fresh).unwrap();
            rename_directory(&fresh, &final_).unwrap();
        }
        fs::write(final_.join("file"), "").unwrap();
        assert_eq!(state(), DirectoryState::Filled);
        recreate_directory(&fresh).unwrap();
        rename_directory(&fresh, &final_).unwrap_err();
        assert!(final_.join("file").exists());
        symlink("final", dir.path().join("link")).unwrap();
        directory_state(&dir.path().join("link")).unwrap_err();
        let strangers = |known: &[&str]| unexpected_entry(dir.path(), |name| known.contains(&name)).unwrap();
        assert_eq!(strangers(&["final", "fresh"]), Some("link".to_owned()));
        assert_eq!(strangers(&["final", "fresh", "link"]), None);
    }
}
