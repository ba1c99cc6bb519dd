//! `btrfs`: space by kind and profile, devices and commits, from `/sys/fs/btrfs`; usage and errors
//! of devices, from the filesystems themselves.

use std::{collections::HashSet, path::Path};

use virtfleet_agent_core::procfs::pairs::pairs;
use virtfleet_agent_host::{Attribute, AttributeBuffer, Device, Devices, RereadError, attribute_buffer};
use virtfleet_wire::exposition::{MetricType, Page};

use super::btrfs_devices::{self, DeviceQueries};
use crate::{CollectError, Collector, Context, RegistryError, Skipped, attributes::number};

/// Kinds of block groups: the directories below `allocation`.
const KINDS: [&str; 3] = ["data", "metadata", "system"];
/// Sector size in sysfs in bytes, independent of the disk.
const SECTOR_BYTES: u64 = 512;

struct Btrfs {
    filesystems: Devices<Filesystem>,
    queries: DeviceQueries,
    buffer: Box<AttributeBuffer>,
}

/// A filesystem's files and their content in this scrape.
struct Filesystem {
    metadata_uuid: Attribute,
    uuid: String,
    label: Attribute,
    label_now: String,
    reserve: Attribute,
    reserve_now: Option<u64>,
    commits: Attribute,
    /// In the order of [`COMMITS`].
    commits_now: [Option<u64>; COMMITS.len()],
    kinds: [Kind; KINDS.len()],
    devices: Devices<File>,
}

struct Kind {
    reserved: File,
    layouts: Devices<Layout>,
}

struct Layout {
    used: File,
    total: File,
}

struct File {
    file: Attribute,
    now: Option<u64>,
}

impl File {
    fn new(path: impl Into<std::path::PathBuf>) -> Self {
        Self {
            file: Attribute::new(path),
            now: None,
        }
    }
    fn read(&mut self, buffer: &mut AttributeBuffer, skipped: &mut Skipped) {
        self.now = number(&mut self.file, buffer, skipped);
    }
}

/// A line of `commit_stats`, its family, HELP, type and divisor; times are in milliseconds.
struct Commit(&'static str, &'static str, &'static str, MetricType, f64);

#[rustfmt::skip]
static COMMITS: [Commit; 4] = [
    Commit("commits", "node_btrfs_commits_total", "Number of commits.", MetricType::Counter, 1.0),
    Commit("last_commit_ms", "node_btrfs_last_commit_seconds", "Duration of the latest commit.", MetricType::Gauge, 1000.0),
    Commit("max_commit_ms", "node_btrfs_max_commit_seconds", "Duration of the slowest commit.", MetricType::Gauge, 1000.0),
    Commit("total_commit_ms", "node_btrfs_commit_seconds_total", "Total duration of all commits.", MetricType::Counter, 1000.0),
];

impl Filesystem {
    fn new(name: &str, path: &Path) -> Self {
        Self {
            metadata_uuid: Attribute::new(path.join("metadata_uuid")),
            uuid: name.to_owned(),
            label: Attribute::new(path.join("label")),
            label_now: String::new(),
            reserve: Attribute::new(path.join("allocation/global_rsv_size")),
            reserve_now: None,
            commits: Attribute::new(path.join("commit_stats")),
            commits_now: [None; COMMITS.len()],
            kinds: KINDS.map(|kind| {
                let path = path.join("allocation").join(kind);
                Kind {
                    reserved: File::new(path.join("bytes_reserved")),
                    layouts: Devices::new(path),
                }
            }),
            devices: Devices::new(path.join("devices")),
        }
    }

    fn read(&mut self, buffer: &mut AttributeBuffer, skipped: &mut Skipped) {
        if let Ok(uuid) = self.metadata_uuid.read(buffer)
            && !uuid.is_empty()
            && self.uuid != *uuid
        {
            self.uuid = uuid.into_owned();
        }
        self.label_now.clear();
        if let Ok(label) = self.label.read(buffer) {
            self.label_now.push_str(&label);
        }
        self.reserve_now = number(&mut self.reserve, buffer, skipped);
        self.read_commits(buffer, skipped);
        for kind in &mut self.kinds {
            kind.reserved.read(buffer, skipped);
            // The other entries are files. A kind may have no block group in a profile now.
            let refreshed = kind.layouts.refresh(
                |name| ratio(name, 3).is_some(),
                |_, path| Layout {
                    used: File::new(path.join("used_bytes")),
                    total: File::new(path.join("total_bytes")),
                },
            );
            ignore_unmounted(refreshed, skipped);
            for layout in kind.layouts.all() {
                layout.kept.used.read(buffer, skipped);
                layout.kept.total.read(buffer, skipped);
            }
        }
        let refreshed = self
            .devices
            .refresh(|_| true, |_, path| File::new(path.join("size")));
        ignore_unmounted(refreshed, skipped);
        for device in self.devices.all() {
            device.kept.read(buffer, skipped);
        }
    }

    /// Kernels before 6.0 have no such file.
    fn read_commits(&mut self, buffer: &mut AttributeBuffer, skipped: &mut Skipped) {
        self.commits_now = [None; COMMITS.len()];
        let path = self.commits.path().to_owned();
        let text = match self.commits.read(buffer) {
            Err(error) if error.is_missing() => return,
            done => skipped.take(done),
        };
        for (key, value) in skipped.valid(&path, pairs(&text.unwrap_or_default())) {
            if let Some(at) = COMMITS.iter().position(|commit| commit.0 == key) {
                self.commits_now[at] = Some(value);
            }
        }
    }
}

/// A filesystem that was unmounted meanwhile is not an error.
fn ignore_unmounted(refreshed: Result<bool, RereadError>, skipped: &mut Skipped) {
    match refreshed {
        Err(error) if error.is_missing() => {}
        done => drop(skipped.take(done)),
    }
}

/// Disk bytes per byte of a RAID profile with this number of devices. `None` for an unknown
/// profile.
fn ratio(layout: &str, devices: usize) -> Option<f64> {
    let devices = devices as f64;
    Some(match layout {
        "single" | "raid0" => 1.0,
        "dup" | "raid1" | "raid10" => 2.0,
        "raid1c3" => 3.0,
        "raid1c4" => 4.0,
        // A number of devices that is unknown has no ratio.
        "raid5" if devices > 1.0 => devices / (devices - 1.0),
        "raid6" if devices > 2.0 => devices / (devices - 2.0),
        _ => return None,
    })
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Btrfs {
        filesystems: Devices::new(context.roots.sys("fs/btrfs")),
        queries: DeviceQueries::new(&context.roots),
        buffer: attribute_buffer(),
    }))
}

impl Collector for Btrfs {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        // A filesystem's directory is named by its UUID; `features` is not a filesystem.
        let refreshed = self
            .filesystems
            .refresh(|name| name.contains('-'), Filesystem::new);
        match refreshed {
            // node_exporter reports nothing and success in this case.
            Err(error) if error.is_missing() => return Ok(()),
            done => done?,
        };
        let mut uuids = HashSet::new();
        let mut skipped = Skipped::default();
        for filesystem in self.filesystems.all() {
            filesystem.kept.read(&mut self.buffer, &mut skipped);
            // A mounted copy has the UUID of its original (kernel: `temp_fsid`) but its own
            // directory.
            if !uuids.insert(filesystem.kept.uuid.clone()) {
                filesystem.kept.uuid.clone_from(&filesystem.name);
            }
        }
        if !self.filesystems.held().is_empty() {
            self.queries.query();
        }
        self.write(page);
        skipped.end()
    }
}

impl Btrfs {
    fn write(&mut self, page: &mut Page) {
        let mut family = page.family(
            "node_btrfs_info",
            "Label of a filesystem, always 1.",
            MetricType::Gauge,
        );
        for fs in self.filesystems.all().iter().map(|fs| &fs.kept) {
            family.sample(&[("uuid", &fs.uuid), ("label", &fs.label_now)], 1.0);
        }
        let mut family = page.family(
            "node_btrfs_global_rsv_size_bytes",
            "Size of the filesystem's global reserve.",
            MetricType::Gauge,
        );
        for fs in self.filesystems.all().iter().map(|fs| &fs.kept) {
            if let Some(size) = fs.reserve_now {
                family.sample(&[("uuid", &fs.uuid)], size as f64);
            }
        }
        for (index, Commit(_, name, help, kind, divisor)) in COMMITS.iter().enumerate() {
            let mut family = page.family(name, help, *kind);
            for fs in self.filesystems.all().iter().map(|fs| &fs.kept) {
                if let Some(value) = fs.commits_now[index] {
                    family.sample(&[("uuid", &fs.uuid)], value as f64 / divisor);
                }
            }
        }
        let mut family = page.family(
            "node_btrfs_reserved_bytes",
            "Space reserved for a kind of data.",
            MetricType::Gauge,
        );
        for fs in self.filesystems.all().iter().map(|fs| &fs.kept) {
            for (name, kind) in KINDS.iter().zip(&fs.kinds) {
                if let Some(reserved) = kind.reserved.now {
                    let labels = [("uuid", fs.uuid.as_str()), ("block_group_type", name)];
                    family.sample(&labels, reserved as f64);
                }
            }
        }
        self.write_layouts(page);
        let mut family = page.family(
            "node_btrfs_device_size_bytes",
            "Size of a device of the filesystem.",
            MetricType::Gauge,
        );
        let mut queried = Vec::new();
        for Device { name, kept: fs, .. } in self.filesystems.held() {
            if let Some(devices) = self.queries.of(name) {
                queried.push((fs.uuid.as_str(), devices));
                for device in devices {
                    family.sample(&btrfs_devices::labels(&fs.uuid, device), device.total as f64);
                }
                continue;
            }
            for device in fs.devices.held() {
                if let Some(sectors) = device.kept.now {
                    let labels = [("uuid", fs.uuid.as_str()), ("device", &device.name)];
                    family.sample(&labels, sectors.saturating_mul(SECTOR_BYTES) as f64);
                }
            }
        }
        btrfs_devices::write(page, &queried);
    }

    fn write_layouts(&mut self, page: &mut Page) {
        type Value = fn(&str, &Layout, usize) -> Option<f64>;
        let families: [(&str, &str, Value); 3] = [
            (
                "node_btrfs_used_bytes",
                "Space used by a kind of data in a RAID profile.",
                |_, layout, _| layout.used.now.map(|bytes| bytes as f64),
            ),
            (
                "node_btrfs_size_bytes",
                "Space allocated to a kind of data in a RAID profile.",
                |_, layout, _| layout.total.now.map(|bytes| bytes as f64),
            ),
            (
                "node_btrfs_allocation_ratio",
                "Disk bytes per byte of a kind of data in a RAID profile.",
                |name, _, devices| ratio(name, devices),
            ),
        ];
        for (name, help, value) in families {
            let mut family = page.family(name, help, MetricType::Gauge);
            for fs in self.filesystems.all().iter_mut().map(|fs| &mut fs.kept) {
                let devices = fs.devices.all().len();
                for (kind_name, kind) in KINDS.iter().zip(&mut fs.kinds) {
                    for layout in kind.layouts.all() {
                        if let Some(value) = value(&layout.name, &layout.kept, devices) {
                            let labels = [
                                ("uuid", fs.uuid.as_str()),
                                ("block_group_type", kind_name),
                                ("mode", &layout.name),
                            ];
                            family.sample(&labels, value);
                        }
                    }
                }
            }
        }
    }
}
