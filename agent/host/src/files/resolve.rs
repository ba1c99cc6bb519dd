//! Symbolic links within another root filesystem.

use std::path::{Path, PathBuf};

use crate::Roots;

impl Roots {
    /// Path of a file of the root filesystem by its absolute path in the guest. If the file is a
    /// link to an absolute path, that path is resolved below the root filesystem, as in the guest.
    pub fn root_file(&self, path: impl AsRef<Path>) -> PathBuf {
        let mut file = self.root(path);
        // With `/` as the root, the kernel resolves links. More links than this are a loop.
        for _ in 0..8 {
            match std::fs::read_link(&file) {
                Ok(link) if link.is_absolute() && self.rootfs != Path::new("/") => file = self.root(link),
                _ => break,
            }
        }
        file
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn absolute_links_stay_in_the_root_filesystem() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().into(),
            ..Roots::default()
        };
        fs::create_dir(dir.path().join("etc")).unwrap();
        fs::write(dir.path().join("zone"), "x").unwrap();
        symlink("/etc/other", dir.path().join("etc/localtime")).unwrap();
        symlink("/zone", dir.path().join("etc/other")).unwrap();
        symlink("/loop", dir.path().join("loop")).unwrap();
        assert_eq!(roots.root_file("/etc/localtime"), dir.path().join("zone"));
        assert_eq!(roots.root_file("/etc/absent"), dir.path().join("etc/absent"));
        assert_eq!(roots.root_file("/loop"), dir.path().join("loop"));
    }
}
