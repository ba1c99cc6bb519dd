//! One disk for several places: its filesystem is mounted at a private directory, and a directory of it at each place.

use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::DiskSettings;

use super::{seen::Mounted, wanted::Owner};

/// Parent of the private mount points. It lies on the root filesystem, so it is there before any disk. Not below
/// `/var/lib/virtfleet`: that is removed with the package, and a removal must not meet mounted data.
pub const PRIVATE_DIRECTORY: &str = "/var/lib/virtfleet-disks";
/// Mode of the root of a filesystem that has places: below the private mount point no parent directory of a place
/// restricts who may read it, so root alone may enter.
pub const PRIVATE_MODE: u32 = 0o700;
/// Prefix of directories that are not filled yet, at the top of the filesystem.
pub const UNFINISHED: &str = ".virtfleet-filling-";

/// A directory at the top of a filesystem that is mounted (mount(2) with `MS_BIND`) at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bind {
    /// Where it is mounted: absolute and normal.
    pub path: String,
    /// Its name: one component.
    pub directory: String,
    /// Owner and mode of the directory, where the settings have them.
    pub owner: Option<Owner>,
}

impl Bind {
    /// The directory below the filesystem's own mount point.
    pub fn source(&self, mount_point: &str) -> String {
        format!("{mount_point}/{}", self.directory)
    }

    /// Whether `mount` is this directory of the filesystem that is mounted as `whole`.
    pub fn is(&self, mount: &Mounted, whole: &Mounted) -> bool {
        is_directory(&self.directory, mount, whole)
    }
}

/// Whether `mount` is the directory of that name at the top of what is mounted as `whole`. The root of a btrfs that has
/// a default subvolume is that subvolume.
pub fn is_directory(directory: &str, mount: &Mounted, whole: &Mounted) -> bool {
    let top = whole.root.trim_end_matches('/');
    mount.number == whole.number && mount.root.strip_prefix(top) == Some(&format!("/{directory}"))
}

/// Where the filesystem of a disk with places is mounted.
pub fn private_mount_point(name: &str) -> String {
    format!("{PRIVATE_DIRECTORY}/{name}")
}

/// The name of a directory whose place gives none: `/var/lib/kubelet` gives `var-lib-kubelet`.
pub fn default_directory(path: &str) -> String {
    let name = path.trim_start_matches('/').replace('/', "-");
    if name.starts_with(['.', '-']) {
        format!("_{name}")
    } else {
        name
    }
}

/// Where the filesystem of a declared disk is mounted as a whole; none for swap, and where the settings give no place.
pub fn mount_point(disk: &DiskSettings) -> Option<String> {
    if disk.places.is_empty() {
        disk.mount_point.clone()
    } else {
        Some(private_mount_point(&disk.name))
    }
}

/// Every path at which a declared disk is mounted: the whole of it first, then its places.
pub fn mount_points(disk: &DiskSettings) -> Vec<String> {
    let places = disk.places.iter().map(|place| place.path.clone());
    mount_point(disk).into_iter().chain(places).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::DevNumber;

    #[test]
    fn a_mount_is_the_directory_of_that_name_on_the_same_device() {
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
