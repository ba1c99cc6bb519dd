//! What `btrfs` asks the filesystems themselves, through their mount points: how much of each device is in use, and its
//! errors. A filesystem that is mounted where we cannot look is known by sysfs alone.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use virtfleet_agent_core::procfs::mountinfo::mounts;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{
    host::{BtrfsDevice, Roots, btrfs_devices},
    metrics::mounts::{MountInfo, shown},
};

/// The errors that a device counts, in the kernel's order.
const ERRORS: [&str; 5] = ["write", "read", "flush", "corruption", "generation"];

/// Finds mount points and asks there.
pub(super) struct Asked {
    roots: Roots,
    mounts: MountInfo,
    /// What the filesystems said of their devices, by UUID.
    told: HashMap<String, Vec<BtrfsDevice>>,
}

impl Asked {
    pub(super) fn new(roots: &Roots) -> Self {
        Self {
            mounts: MountInfo::new(roots),
            roots: roots.clone(),
            told: HashMap::new(),
        }
    }

    /// Asks each filesystem once. What cannot be asked, or found, tells nothing.
    pub(super) fn ask(&mut self) {
        self.told.clear();
        let Ok((_, text)) = self.mounts.refresh() else {
            return;
        };
        let mut done = HashSet::new();
        for mount in mounts(text).filter_map(Result::ok) {
            // A subvolume or a bind mount has the number of its filesystem here.
            let number = (mount.major, mount.minor);
            if mount.fs_type != b"btrfs" || done.contains(&number) {
                continue;
            }
            let path = Path::new(OsStr::from_bytes(shown(&self.roots, &mount)));
            if let Ok(filesystem) = btrfs_devices(&self.roots.root(path)) {
                done.insert(number);
                self.told.insert(filesystem.uuid, filesystem.devices);
            }
        }
    }

    /// The devices of the filesystem whose UUID is `uuid`, if it told.
    pub(super) fn of(&self, uuid: &str) -> Option<&[BtrfsDevice]> {
        self.told.get(uuid).map(Vec::as_slice)
    }
}

/// The families that only the filesystems themselves tell. `all`: the label `uuid`, and the devices.
pub(super) fn write(page: &mut Page, all: &[(&str, &[BtrfsDevice])]) {
    if all.is_empty() {
        return;
    }
    let mut family = page.family(
        "node_btrfs_device_unused_bytes",
        "Space of a device that nothing was allocated from.",
        MetricType::Gauge,
    );
    for (uuid, devices) in all {
        for device in *devices {
            let unused = device.total.saturating_sub(device.used);
            family.sample(&labels(uuid, device), unused as f64);
        }
    }
    let mut family = page.family(
        "node_btrfs_device_errors_total",
        "Errors that a device has had since its counters were made or set back.",
        MetricType::Counter,
    );
    for (uuid, devices) in all {
        for device in *devices {
            for (kind, count) in ERRORS.iter().zip(device.errors) {
                let [uuid, name, own] = labels(uuid, device);
                family.sample(&[uuid, ("type", kind), name, own], count as f64);
            }
        }
    }
}

/// The labels of a device that was told of.
pub(super) fn labels<'text>(uuid: &'text str, device: &'text BtrfsDevice) -> [(&'static str, &'text str); 3] {
    [
        ("uuid", uuid),
        ("device", &device.name),
        ("btrfs_dev_uuid", &device.uuid),
    ]
}
