//! One disk for several places: its filesystem is mounted at a private directory, and one of its
//! directories at each place.

use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::DiskSettings;

use super::{seen::Mounted, wanted::Owner};

/// Parent of the private mount points. It is on the root filesystem, so it exists before any disk
/// is mounted. It is not below `/var/lib/virtfleet`, because the package removes that directory.
pub const PRIVATE_DIRECTORY: &str = "/var/lib/virtfleet-disks";
/// Mode of the root directory of a filesystem with places: below the private mount point no parent
/// of a place restricts access, so only root may enter.
pub const PRIVATE_MODE: u32 = 0o700;
/// Prefix of directories at the top of the filesystem that are not completely filled yet.
pub const UNFINISHED: &str = ".virtfleet-filling-";

/// Bind mount (mount(2) with `MS_BIND`) of a directory at the top of a filesystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bind {
    /// Mount point: an absolute, normalised path.
    pub path: String,
    /// Name of the directory: one path component.
    pub directory: String,
    /// Owner and mode of the directory, if the settings have them.
    pub owner: Option<Owner>,
}

impl Bind {
    /// The directory below the filesystem's own mount point.
    pub fn source(&self, mount_point: &str) -> String {
        format!("{mount_point}/{}", self.directory)
    }

    /// Whether `mount` is this directory of the filesystem mounted as `whole`.
    pub fn is(&self, mount: &Mounted, whole: &Mounted) -> bool {
        is_directory(&self.directory, mount, whole)
    }
}

/// Whether `mount` is the directory of that name at the top of the filesystem mounted as `whole`.
/// If a btrfs has a default subvolume, that is its root.
pub fn is_directory(directory: &str, mount: &Mounted, whole: &Mounted) -> bool {
    let top = whole.root.trim_end_matches('/');
    mount.number == whole.number && mount.root.strip_prefix(top) == Some(&format!("/{directory}"))
}

/// Mount point of the filesystem of a disk with places.
pub fn private_mount_point(name: &str) -> String {
    format!("{PRIVATE_DIRECTORY}/{name}")
}

/// Default directory name of a place: `/var/lib/kubelet` yields `var-lib-kubelet`.
pub fn default_directory(path: &str) -> String {
    let name = path.trim_start_matches('/').replace('/', "-");
    if name.starts_with(['.', '-']) {
        format!("_{name}")
    } else {
        name
    }
}

/// Mount point of the whole filesystem of a disk; `None` for swap, and if the settings have no
/// path.
pub fn mount_point(disk: &DiskSettings) -> Option<String> {
    if disk.places.is_empty() {
        disk.mount_point.clone()
    } else {
        Some(private_mount_point(&disk.name))
    }
}

/// All paths at which a disk is mounted: the whole filesystem first, then its places.
pub fn mount_points(disk: &DiskSettings) -> Vec<String> {
    let places = disk.places.iter().map(|place| place.path.clone());
    mount_point(disk).into_iter().chain(places).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::DevNumber;

    #[test]
    fn mount_is_recognised_by_device_and_directory() {
        let mount = |minor, root: &str| Mounted {
            mount_point: "/x".into(),
            number: DevNumber { major: 253, minor },
            root: root.into(),
            filesystem: "btrfs".into(),
            options: Vec::new(),
            filesystem_bytes: None,
            owner: None,
        };
        for (whole, minor, root, is) in [
            ("/", 16, "/logs", true),
            ("/", 32, "/logs", false),
            ("/", 16, "/logs/old", false),
            ("/", 16, "/", false),
            ("/", 16, "/catalogs", false),
            ("/@data", 16, "/@data/logs", true),
            ("/@data", 16, "/logs", false),
        ] {
            assert_eq!(
                is_directory("logs", &mount(minor, root), &mount(16, whole)),
                is,
                "{whole} {minor} {root}"
            );
        }
        assert_eq!(default_directory("/var/lib/kubelet"), "var-lib-kubelet");
    }
}
