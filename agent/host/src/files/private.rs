//! Directories and files of one user alone.

use std::{fs::DirBuilder, io, os::unix::fs::DirBuilderExt as _, path::Path};

use super::atomic_file::make_directories;

/// Creates a directory with mode 0700, unless it exists. Missing parents get mode 0755.
///
/// # Errors
/// A directory cannot be created.
pub fn make_private_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_directories(parent)?;
    }
    DirBuilder::new().mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn only_the_directory_itself_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        for _ in 0..2 {
            make_private_directory(&path).unwrap();
        }
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&path), mode(&dir.path().join("a"))), (0o700, 0o755));
    }
}
