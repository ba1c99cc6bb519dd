//! Roots of the guest's file trees, as in node_exporter's `--path.*` flags. No other code contains
//! `/proc` literally.

use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// `--path.rootfs`: the guest's root filesystem, by default `/`. It contains the settings and
    /// state files.
    pub rootfs: PathBuf,
    /// `--path.procfs`: by default `/proc`.
    pub procfs: PathBuf,
    /// `--path.sysfs`: by default `/sys`.
    pub sysfs: PathBuf,
    /// `--path.udev.data`: by default `/run/udev/data`.
    pub udev_data: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            rootfs: "/".into(),
            procfs: "/proc".into(),
            sysfs: "/sys".into(),
            udev_data: "/run/udev/data".into(),
        }
    }
}

impl Roots {
    /// Path of a procfs file, e.g. `roots.proc("net/dev")`.
    pub fn proc(&self, path: impl AsRef<Path>) -> PathBuf {
        self.procfs.join(path)
    }
    /// Path of a sysfs file, e.g. `roots.sys("class/net")`.
    pub fn sys(&self, path: impl AsRef<Path>) -> PathBuf {
        self.sysfs.join(path)
    }
    /// Path of a file by its absolute path in the guest, e.g. `roots.root("/etc/os-release")`.
    pub fn root(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.rootfs.join(path.strip_prefix("/").unwrap_or(path))
    }
}
