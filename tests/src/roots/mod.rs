//! Generated `proc` and `sys` trees of a guest of any size: the files that depend on CPUs, disks
//! and NICs are generated, the others come from a fixture.

mod cpus;
mod disks;
mod files;
mod nics;
pub mod virtio;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// Size of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// CPUs, all online.
    pub cpus: usize,
    /// Disks, named `vda` and so on.
    pub disks: usize,
    /// NICs, named `eth0` and so on, beside `lo`.
    pub nics: usize,
}

impl Shape {
    /// A small guest.
    pub const SMALL: Self = Self {
        cpus: 2,
        disks: 2,
        nics: 2,
    };
}

/// The fixture with the files that do not depend on the size.
pub fn base() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/roots/kubevirt")
}

/// Writes `proc`, `sys`, `rootfs` and `udev` of a guest of that shape into `dir`, based on a copy
/// of [`base`].
pub fn write(dir: &Path, shape: Shape) -> Result<()> {
    copy(&base(), dir)?;
    for path in [
        "expected.prom",
        "sys/devices/system/cpu",
        "sys/block",
        "sys/class/block",
        "sys/class/net",
        "sys/dev/block",
        "sys/fs/ext4",
        "sys/fs/xfs",
        "sys/fs/btrfs",
        "udev",
    ] {
        remove(&dir.join(path))?;
    }
    cpus::write(dir, shape.cpus)?;
    disks::write(dir, shape.disks)?;
    nics::write(dir, shape.nics)
}

/// Copies a tree; links are copied as links.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, &target).with_context(|| target.display().to_string())?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target).with_context(|| target.display().to_string())?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    let gone = match fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    };
    gone.with_context(|| format!("remove {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_grow_with_the_shape() {
        let folder = tempfile::tempdir().unwrap();
        let shape = Shape {
            cpus: 16,
            disks: 30,
            nics: 5,
        };
        write(folder.path(), shape).unwrap();
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
        let stat = read("proc/stat");
        assert!(stat.contains("\ncpu15 ") && !stat.contains("\ncpu16 "));
        assert_eq!(
            fs::read_to_string(folder.path().join("proc/diskstats"))
                .unwrap()
                .lines()
                .count(),
            30
        );
        assert!(read("proc/diskstats").contains(" vdad "));
        assert_eq!(read("proc/net/dev").lines().count(), 2 + 1 + 5);
        assert!(folder.path().join("sys/class/net/eth4/statistics").is_dir());
        assert!(folder.path().join("sys/block/vdad/queue/rotational").is_file());
        let cpus = folder
            .path()
            .join("sys/devices/system/cpu/cpu15/topology/core_id");
        assert!(cpus.is_file());
    }
}
