//! What `btrfs` asks the filesystems themselves, through their mount points: how much of each device is in use, and its
//! errors. A filesystem that is mounted where we cannot look is known by sysfs alone.

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
    BtrfsDevice, BtrfsFilesystem, FsSpace, MountProbe, Outcome, Roots, Statfs, Target, btrfs_devices,
};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::mounts::{MountInfo, Topmost, shown};

/// The errors that a device counts, in the kernel's order.
const ERRORS: [&str; 5] = ["write", "read", "flush", "corruption", "generation"];

/// How long all filesystems may take, each once. One that takes longer is known by sysfs alone until it answers.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What the probe's threads heard, by path.
#[derive(Default)]
struct Heard(Mutex<HashMap<Arc<Path>, BtrfsFilesystem>>);

/// Asks for devices in the place of space: the probe's threads may hang, and this collector must not.
impl Statfs for Heard {
    fn statfs(&self, path: &Path) -> Result<FsSpace, Errno> {
        let filesystem = btrfs_devices(path)?;
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.insert(path.into(), filesystem);
        Ok(FsSpace::default())
    }
}

/// Finds mount points and asks there.
pub(super) struct Asked {
    roots: Roots,
    mounts: MountInfo,
    probe: MountProbe,
    heard: Arc<Heard>,
    /// What the filesystems said of their devices, by UUID.
    told: HashMap<String, Vec<BtrfsDevice>>,
}

impl Asked {
    pub(super) fn new(roots: &Roots) -> Self {
        let heard = Arc::<Heard>::default();
        Self {
            mounts: MountInfo::new(roots),
            probe: MountProbe::new(Arc::clone(&heard) as Arc<dyn Statfs>, TIMEOUT),
            heard,
            roots: roots.clone(),
            told: HashMap::new(),
        }
    }

    /// Asks each filesystem once, wherever one of its mounts answers. What cannot be asked, or found, tells nothing.
    pub(super) fn ask(&mut self) {
        self.told.clear();
        let Ok((_, text)) = self.mounts.refresh() else {
            return;
        };
        let mut left = candidates(&self.roots, text);
        let begun = Instant::now();
        while !left.is_empty() && begun.elapsed() < TIMEOUT {
            let targets: Vec<Target> = left.iter_mut().filter_map(Vec::pop).collect();
            // Without a thread, nobody is asked.
            let Ok(outcomes) = self.probe.probe(&targets) else {
                return;
            };
            let mut heard = self.heard.0.lock().unwrap_or_else(PoisonError::into_inner);
            let mut outcomes = outcomes.into_iter().zip(&targets);
            left.retain(|more| match outcomes.next() {
                Some((Outcome::Space(_), target)) => {
                    if let Some(filesystem) = heard.remove(&target.path) {
                        self.told.insert(filesystem.uuid, filesystem.devices);
                    }
                    false
                }
                // Perhaps it may be asked at another of its mounts.
                Some((Outcome::Failed(_), _)) => !more.is_empty(),
                // It would hang there as well.
                Some((Outcome::TimedOut, _)) | None => false,
            });
            // What was answered too late.
            heard.clear();
        }
    }

    /// The devices of the filesystem whose UUID is `uuid`, if it told.
    pub(super) fn of(&self, uuid: &str) -> Option<&[BtrfsDevice]> {
        self.told.get(uuid).map(Vec::as_slice)
    }
}

/// Where each filesystem may be asked, the first mount last, and none that something else is mounted over.
fn candidates(roots: &Roots, mountinfo: &[u8]) -> Vec<Vec<Target>> {
    let all: Vec<_> = mounts(mountinfo).filter_map(Result::ok).collect();
    let topmost = Topmost::new(&all);
    // A subvolume or a bind mount has the number of its filesystem here.
    let mut places: HashMap<(u32, u32), usize> = HashMap::new();
    let mut found: Vec<Vec<Target>> = Vec::new();
    for mount in all.iter().rev() {
        if mount.fs_type != b"btrfs" || !topmost.is(mount) {
            continue;
        }
        let target = Target {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_filesystem_is_asked_where_nothing_is_mounted_over_it() {
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
    fn what_is_no_btrfs_after_all_tells_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("self")).unwrap();
        let lines = "1 0 0:30 / /proc rw - btrfs /dev/vda2 rw\n2 0 0:30 / /no/such rw - btrfs /dev/vda2 rw\n";
        std::fs::write(dir.path().join("self/mountinfo"), lines).unwrap();
        let mut asked = Asked::new(&Roots {
            procfs: dir.path().into(),
            ..Roots::default()
        });
        asked.ask();
        assert!(asked.told.is_empty());
    }
}
