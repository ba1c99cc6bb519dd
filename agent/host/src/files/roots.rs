//! Where the guest's trees are, as node_exporter's `--path.*` flags have it, so that nothing names `/proc` literally.

use std::path::{Path, PathBuf};

/// The four roots of every verb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// `--path.rootfs`: the guest's root filesystem, `/` by default. Settings and state files lie under it.
    pub rootfs: PathBuf,
    /// `--path.procfs`: `/proc` by default.
    pub procfs: PathBuf,
    /// `--path.sysfs`: `/sys` by default.
    pub sysfs: PathBuf,
    /// `--path.udev.data`: `/run/udev/data` by default.
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
    /// A file of procfs, e.g. `roots.proc("net/dev")`.
    pub fn proc(&self, path: impl AsRef<Path>) -> PathBuf {
        self.procfs.join(path)
    }
    /// A file of sysfs, e.g. `roots.sys("class/net")`.
    pub fn sys(&self, path: impl AsRef<Path>) -> PathBuf {
        self.sysfs.join(path)
    }
    /// A file of the root filesystem by its absolute path in the guest, e.g. `roots.root("/etc/os-release")`.
    pub fn root(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.rootfs.join(path.strip_prefix("/").unwrap_or(path))
    }
}
