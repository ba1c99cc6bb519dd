//! Mounts and swap areas.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use nix::libc;
use virtfleet_agent_core::{
    disks::{DevNumber, seen::Mounted},
    procfs::mountinfo,
};

use super::super::facts::dev_number;
use crate::{ReadError, Roots, list, read_bounded, read_line, read_text};

const MAX_MOUNTINFO_BYTES: usize = 64 << 20;

/// Why the mounts are unknown.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the mounts: {}: {reason}", path.display())]
pub struct MountsError {
    pub(in crate::disks) path: PathBuf,
    pub(in crate::disks) reason: String,
}

/// The mounts of PID 1 on block devices; sizes and owners are not filled.
///
/// Mount points are those of the guest: a root filesystem that is not `/` is stripped as a prefix,
/// and mounts outside of it are left out.
///
/// # Errors
/// mountinfo cannot be read or parsed.
pub fn disk_mounts(roots: &Roots) -> Result<Vec<Mounted>, MountsError> {
    let path = roots.proc("1/mountinfo");
    let error = |reason: String| MountsError {
        path: path.clone(),
        reason,
    };
    let bytes = read_bounded(&path, MAX_MOUNTINFO_BYTES).map_err(|reason| error(reason.to_string()))?;
    let mut mounts = Vec::new();
    for mount in mountinfo::mounts(&bytes) {
        let mount = mount.map_err(|reason| error(reason.to_string()))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let Some(mount_point) = within(roots, &text(&mount.mount_point)) else {
            continue;
        };
        let own = DevNumber {
            major: mount.major,
            minor: mount.minor,
        };
        let source = text(mount.source);
        // btrfs has a number without a device; its source is one of its devices.
        let number = if own.major == 0 && source.starts_with("/dev/") {
            node_number(&roots.root(source)).unwrap_or(own)
        } else {
            own
        };
        let options = [mount.options, mount.super_options]
            .iter()
            .flat_map(|options| text(options).split(',').map(str::to_owned).collect::<Vec<_>>())
            .collect();
        mounts.push(Mounted {
            mount_point,
            number,
            root: text(&mount.root),
            filesystem: text(mount.fs_type),
            options,
            filesystem_bytes: None,
            owner: None,
        });
    }
    Ok(mounts)
}

fn within(roots: &Roots, mount_point: &str) -> Option<String> {
    let below = Path::new(mount_point).strip_prefix(&roots.rootfs).ok()?;
    Some(Path::new("/").join(below).display().to_string())
}

/// Device number of a block device's node.
pub fn node_number(path: &Path) -> Option<DevNumber> {
    let metadata = std::fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then(|| {
        let number = metadata.rdev();
        DevNumber {
            major: libc::major(number),
            minor: libc::minor(number),
        }
    })
}

/// Block devices in use as swap. Empty on a kernel without swap.
///
/// # Errors
/// `/proc/swaps` cannot be read.
pub fn swapped(roots: &Roots) -> Result<BTreeSet<DevNumber>, MountsError> {
    let path = roots.proc("swaps");
    let text = match read_text(&path, 1 << 20) {
        Ok(text) => text,
        Err(ReadError::Missing) => return Ok(BTreeSet::new()),
        Err(error) => {
            let reason = error.to_string();
            return Err(MountsError { path, reason });
        }
    };
    let nodes = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_ascii_whitespace().next());
    Ok(nodes.filter_map(|node| node_number(&roots.root(node))).collect())
}

/// Numbers of the devices of each mounted btrfs, by its UUID (`/sys/fs/btrfs/UUID/devices`).
pub fn btrfs_members(roots: &Roots) -> BTreeMap<String, BTreeSet<DevNumber>> {
    let folder = roots.sys("fs/btrfs");
    let numbers = |uuid: &str| -> BTreeSet<DevNumber> {
        let members = folder.join(uuid).join("devices");
        let names = list(&members).unwrap_or_default().into_iter();
        names
            .filter_map(|name| dev_number(&read_line(&members.join(name).join("dev"))?))
            .collect()
    };
    let mut found = BTreeMap::new();
    // Beside them is `features`, which has no devices.
    for uuid in list(&folder).unwrap_or_default() {
        let numbers = numbers(&uuid);
        if !numbers.is_empty() {
            found.insert(uuid, numbers);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn members_of_a_btrfs_are_disks_and_partitions() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            sysfs: dir.path().to_owned(),
            ..Roots::default()
        };
        assert_eq!(btrfs_members(&roots), BTreeMap::new());
        for (member, number) in [("vdc1", "253:33\n"), ("vdb", "253:16\n")] {
            let folder = dir.path().join("fs/btrfs/6d2b/devices").join(member);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("dev"), number).unwrap();
        }
        fs::create_dir(dir.path().join("fs/btrfs/features")).unwrap();
        let numbers = [16, 33].map(|minor| DevNumber { major: 253, minor });
        let expected = BTreeMap::from([("6d2b".to_owned(), BTreeSet::from(numbers))]);
        assert_eq!(btrfs_members(&roots), expected);
    }

    #[test]
    fn mount_points_are_those_of_the_guest() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: "/guest".into(),
            procfs: dir.path().to_owned(),
            ..Roots::default()
        };
        fs::create_dir(dir.path().join("1")).unwrap();
        let text =
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:16 / /guest/data rw,noatime - xfs /dev/sdb rw,attr2\n";
        fs::write(dir.path().join("1/mountinfo"), text).unwrap();
        let mounts = disk_mounts(&roots).unwrap();
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].mount_point, "/data");
        assert_eq!(mounts[0].number, DevNumber { major: 8, minor: 16 });
        assert_eq!(mounts[0].options, ["rw", "noatime", "rw", "attr2"]);
        fs::write(dir.path().join("1/mountinfo"), "nonsense\n").unwrap();
        let error = disk_mounts(&roots).unwrap_err().to_string();
        assert!(error.contains("1/mountinfo"), "{error}");
        assert_eq!(swapped(&roots).unwrap(), BTreeSet::new());
    }
}
