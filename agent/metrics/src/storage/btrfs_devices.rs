//! The part of `btrfs` from the filesystems themselves, through their mount points: usage and
//! errors of each device. For a filesystem that is mounted where the agent has no access, only
//! sysfs is used.

use std::{
    collections::HashMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use virtfleet_agent_core::procfs::mountinfo::mounts;
use virtfleet_agent_host::Errno;
use virtfleet_agent_host::{
    BtrfsDevice, BtrfsFilesystem, FsSpace, MountProbe, MountTarget, Roots, Statfs, StatfsOutcome,
    btrfs_devices,
};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::mounts::{MountInfo, Topmost, shown};

/// Error counters of a device in the kernel's order.
const ERRORS: [&str; 5] = ["write", "read", "flush", "corruption", "generation"];

/// Maximum time for all filesystems. For a filesystem that takes longer, only sysfs is used until
/// it responds.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Results of the probe's threads by path.
#[derive(Default)]
struct QueryResults(Mutex<HashMap<Arc<Path>, BtrfsFilesystem>>);

/// Queries the devices in place of the space: the probe's threads may hang, but this collector must
/// not.
impl Statfs for QueryResults {
    fn statfs(&self, path: &Path) -> Result<FsSpace, Errno> {
        let filesystem = btrfs_devices(path)?;
        let mut results = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        results.insert(path.into(), filesystem);
        Ok(FsSpace::default())
    }
}

/// Finds mount points and queries the filesystems there.
pub(super) struct DeviceQueries {
    roots: Roots,
    mounts: MountInfo,
    probe: MountProbe,
    results: Arc<QueryResults>,
    /// Devices by the filesystem's UUID.
    devices: HashMap<String, Vec<BtrfsDevice>>,
}

impl DeviceQueries {
    pub(super) fn new(roots: &Roots) -> Self {
        let results = Arc::<QueryResults>::default();
        Self {
            mounts: MountInfo::new(roots),
            probe: MountProbe::new(Arc::clone(&results) as Arc<dyn Statfs>, TIMEOUT),
            results,
            roots: roots.clone(),
            devices: HashMap::new(),
        }
    }

    /// Queries each filesystem once, at the first of its mounts that answers. A filesystem that
    /// cannot be queried has no result.
    pub(super) fn query(&mut self) {
        self.devices.clear();
        let Ok((_, text)) = self.mounts.refresh() else {
            return;
        };
        let mut left = candidates(&self.roots, text);
        let begun = Instant::now();
        while !left.is_empty() && begun.elapsed() < TIMEOUT {
            let targets: Vec<MountTarget> = left.iter_mut().filter_map(Vec::pop).collect();
            // Without a thread no query is possible.
            let Ok(outcomes) = self.probe.probe(&targets) else {
                return;
            };
            let mut results = self.results.0.lock().unwrap_or_else(PoisonError::into_inner);
            let mut outcomes = outcomes.into_iter().zip(&targets);
            left.retain(|more| match outcomes.next() {
                Some((StatfsOutcome::Space(_), target)) => {
                    if let Some(filesystem) = results.remove(&target.path) {
                        self.devices.insert(filesystem.uuid, filesystem.devices);
                    }
                    false
                }
                // Another of its mounts may be accessible.
                Some((StatfsOutcome::Failed(_), _)) => !more.is_empty(),
                // It would hang there as well.
                Some((StatfsOutcome::TimedOut, _)) | None => false,
            });
            // Results that arrived too late.
            results.clear();
        }
    }

    /// The devices of the filesystem with this UUID, if it was queried.
    pub(super) fn of(&self, uuid: &str) -> Option<&[BtrfsDevice]> {
        self.devices.get(uuid).map(Vec::as_slice)
    }
}

/// Mounts at which each filesystem can be queried, the first one last, without covered mounts.
fn candidates(roots: &Roots, mountinfo: &[u8]) -> Vec<Vec<MountTarget>> {
    let all: Vec<_> = mounts(mountinfo).filter_map(Result::ok).collect();
    let topmost = Topmost::new(&all);
    // Here a subvolume or bind mount has the number of its filesystem.
    let mut places: HashMap<(u32, u32), usize> = HashMap::new();
    let mut found: Vec<Vec<MountTarget>> = Vec::new();
    for mount in all.iter().rev() {
        if mount.fs_type != b"btrfs" || !topmost.is(mount) {
            continue;
        }
        let target = MountTarget {
            mount_id: mount.id,
            path: roots
                .root(Path::new(OsStr::from_bytes(shown(roots, mount))))
                .into(),
        };
        let place = *places.entry((mount.major, mount.minor)).or_insert(found.len());
        match found.get_mut(place) {
            Some(targets) => targets.push(target),
            None => found.push(vec![target]),
        }
    }
    found
}

/// Families with data from the filesystems themselves. `all`: the label `uuid`, and the devices.
pub(super) fn write(page: &mut Page, all: &[(&str, &[BtrfsDevice])]) {
    if all.is_empty() {
        return;
    }
    let mut family = page.family(
        "node_btrfs_device_unused_bytes",
        "Unallocated space of a device.",
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
        "Errors of a device since its counters were created or reset.",
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

pub(super) fn labels<'text>(uuid: &'text str, device: &'text BtrfsDevice) -> [(&'static str, &'text str); 3] {
    [
        ("uuid", uuid),
        ("device", &device.name),
        ("btrfs_dev_uuid", &device.uuid),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_filesystem_is_queried_at_a_mount_that_is_not_covered() {
        let mountinfo = b"1 0 0:30 / / rw - btrfs /dev/vda2 rw\n\
            2 1 0:31 / /data rw - btrfs /dev/vdb rw\n\
            3 1 0:31 /pod /var/lib/pod rw - btrfs /dev/vdb rw\n\
            4 2 0:40 / /data rw - nfs4 away:/data rw\n\
            5 1 0:31 /other /srv rw - btrfs /dev/vdb rw\n\
            6 1 0:32 / /gone rw - btrfs /dev/vdc rw\n\
            7 6 0:40 / /gone rw - nfs4 away:/gone rw\n";
        let found = candidates(&Roots::default(), mountinfo);
        let numbers: Vec<Vec<u32>> = found
            .iter()
            .map(|targets| targets.iter().rev().map(|target| target.mount_id).collect())
            .collect();
        assert_eq!(numbers, [vec![3, 5], vec![1]]);
        assert_eq!(&*found[0][1].path, Path::new("/var/lib/pod"));
    }

    #[test]
    fn other_filesystems_have_no_result() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("self")).unwrap();
        let lines = "1 0 0:30 / /proc rw - btrfs /dev/vda2 rw\n2 0 0:30 / /no/such rw - btrfs /dev/vda2 rw\n";
        std::fs::write(dir.path().join("self/mountinfo"), lines).unwrap();
        let mut queries = DeviceQueries::new(&Roots {
            procfs: dir.path().into(),
            ..Roots::default()
        });
        queries.query();
        assert!(queries.devices.is_empty());
    }
}
