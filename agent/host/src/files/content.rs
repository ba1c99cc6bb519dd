//! Whole files and links, as the installer compares them.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
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

/// True if both paths lead to one regular file. The second path may not be a link; the first one
/// may, as `/proc/self/exe`.
pub fn is_same_file(path: &Path, plain: &Path) -> bool {
    let (Ok(one), Ok(other)) = (path.metadata(), plain.symlink_metadata()) else {
        return false;
    };
    other.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The target of a symbolic link. `None` for anything else.
pub fn link_target(path: &Path) -> Option<PathBuf> {
    fs::read_link(path).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_the_same_under_each_of_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "content").unwrap();
        fs::write(at("equal"), "content").unwrap();
        fs::hard_link(at("file"), at("second-name")).unwrap();
        symlink(at("file"), at("link")).unwrap();
        for name in ["file", "second-name", "link"] {
            assert!(is_same_file(&at(name), &at("file")), "{name}");
        }
        for other in ["equal", "link", "absent"] {
            assert!(!is_same_file(&at("file"), &at(other)), "{other}");
        }
        assert!(!is_same_file(&at("absent"), &at("file")));
        assert!(!is_same_file(folder.path(), folder.path()), "a folder");
    }
}
