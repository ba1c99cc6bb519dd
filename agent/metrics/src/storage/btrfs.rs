//! `btrfs`: space by kind and layout, devices and commits, from `/sys/fs/btrfs`; what devices have used and their
//! errors, from the filesystems themselves.

use std::{collections::HashSet, path::Path};

use virtfleet_agent_core::procfs::pairs::pairs;
use virtfleet_agent_host::{Attribute, AttributeBuffer, Device, Devices, attribute_buffer};
use virtfleet_wire::exposition::{MetricType, Page};

use super::btrfs_devices::{self, Asked};
use crate::{CollectError, Collector, Context, RegistryError, attributes::number};

/// What block groups hold: the folders below `allocation`.
const KINDS: [&str; 3] = ["data", "metadata", "system"];
/// Sectors are of 512 bytes in sysfs, whatever the disk's are.
const SECTOR: u64 = 512;

struct Btrfs {
    filesystems: Devices<Filesystem>,
    asked: Asked,
    buffer: Box<AttributeBuffer>,
}

/// A filesystem's files, and what they said in this scrape.
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

/// A file of one number.
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
    fn read(&mut self, buffer: &mut AttributeBuffer) -> Result<(), CollectError> {
        self.now = None;
        self.now = number(&mut self.file, buffer)?;
        Ok(())
    }
}

/// A line of `commit_stats`, its family, what it says, and whether it only goes up; times are in milliseconds.
struct Commit(&'static str, &'static str, &'static str, MetricType, f64);

#[rustfmt::skip]
static COMMITS: [Commit; 4] = [
    Commit("commits", "node_btrfs_commits_total", "How many commits there were.", MetricType::Counter, 1.0),
    Commit("last_commit_ms", "node_btrfs_last_commit_seconds", "How long the latest commit took.", MetricType::Gauge, 1000.0),
    Commit("max_commit_ms", "node_btrfs_max_commit_seconds", "How long the slowest commit took.", MetricType::Gauge, 1000.0),
    Commit("total_commit_ms", "node_btrfs_commit_seconds_total", "How long all commits took.", MetricType::Counter, 1000.0),
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

    fn read(&mut self, buffer: &mut AttributeBuffer) -> Result<(), CollectError> {
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
        self.reserve_now = None;
        self.reserve_now = number(&mut self.reserve, buffer)?;
        self.read_commits(buffer)?;
        for kind in &mut self.kinds {
            kind.reserved.read(buffer)?;
            // The other entries are files. A block group of the kind may be in none of the layouts now.
            let refreshed = kind.layouts.refresh(
                |name| ratio(name, 0).is_some(),
                |_, path| Layout {
                    used: File::new(path.join("used_bytes")),
                    total: File::new(path.join("total_bytes")),
                },
            );
            gone(refreshed)?;
            for layout in kind.layouts.all() {
                layout.kept.used.read(buffer)?;
                layout.kept.total.read(buffer)?;
            }
        }
        gone(
            self.devices
                .refresh(|_| true, |_, path| File::new(path.join("size"))),
        )?;
        for device in self.devices.all() {
            device.kept.read(buffer)?;
        }
        Ok(())
    }

    /// Kernels before 6.0 have no such file.
    fn read_commits(&mut self, buffer: &mut AttributeBuffer) -> Result<(), CollectError> {
        self.commits_now = [None; COMMITS.len()];
        let path = self.commits.path().to_owned();
        let text = match self.commits.read(buffer) {
            Err(error) if error.is_missing() => return Ok(()),
            done => done?,
        };
        for pair in pairs(&text) {
            let (key, value) = pair.map_err(CollectError::parse(&path))?;
            if let Some(at) = COMMITS.iter().position(|commit| commit.0 == key) {
                self.commits_now[at] = Some(value);
            }
        }
        Ok(())
    }
}

/// A filesystem that was unmounted meanwhile is no fault.
fn gone(refreshed: Result<bool, virtfleet_agent_host::RereadError>) -> Result<(), CollectError> {
    match refreshed {
        Err(error) if error.is_missing() => Ok(()),
        done => {
            done?;
            Ok(())
        }
    }
}

/// How many bytes of disks a byte of a layout takes on so many devices; none for what is no layout.
fn ratio(layout: &str, devices: usize) -> Option<f64> {
    let devices = devices as f64;
    Some(match layout {
        "single" | "raid0" => 1.0,
        "dup" | "raid1" | "raid10" => 2.0,
        "raid1c3" => 3.0,
        "raid1c4" => 4.0,
        "raid5" => devices / (devices - 1.0),
        "raid6" => devices / (devices - 2.0),
        _ => return None,
    })
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Btrfs {
        filesystems: Devices::new(context.roots.sys("fs/btrfs")),
        asked: Asked::new(&context.roots),
        buffer: attribute_buffer(),
    }))
}

impl Collector for Btrfs {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        // A filesystem's folder has its UUID for a name; `features` is one, too, and is none.
        let refreshed = self
            .filesystems
            .refresh(|name| name.contains('-'), Filesystem::new);
        match refreshed {
            // node_exporter has nothing to say then, and calls that a success.
            Err(error) if error.is_missing() => return Ok(()),
            done => done?,
        };
        let mut uuids = HashSet::new();
        for filesystem in self.filesystems.all() {
            filesystem.kept.read(&mut self.buffer)?;
            // A copy that is mounted beside its original has the same (kernel: `temp_fsid`); its folder has its own.
            if !uuids.insert(filesystem.kept.uuid.clone()) {
                filesystem.kept.uuid.clone_from(&filesystem.name);
            }
        }
        if !self.filesystems.held().is_empty() {
            self.asked.ask();
        }
        self.write(page);
        Ok(())
    }
}

impl Btrfs {
    fn write(&mut self, page: &mut Page) {
        let mut family = page.family(
            "node_btrfs_info",
            "What a filesystem is called, always 1.",
            MetricType::Gauge,
        );
        for fs in self.filesystems.all().iter().map(|fs| &fs.kept) {
            family.sample(&[("uuid", &fs.uuid), ("label", &fs.label_now)], 1.0);
        }
        let mut family = page.family(
            "node_btrfs_global_rsv_size_bytes",
            "Size of the reserve that is kept for the filesystem's own work.",
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
            "Space that is reserved for a kind of data.",
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
        let mut told = Vec::new();
        for Device { name, kept: fs, .. } in self.filesystems.held() {
            if let Some(devices) = self.asked.of(name) {
                told.push((fs.uuid.as_str(), devices));
                for device in devices {
                    family.sample(&btrfs_devices::labels(&fs.uuid, device), device.total as f64);
                }
                continue;
            }
            for device in fs.devices.held() {
                if let Some(sectors) = device.kept.now {
                    let labels = [("uuid", fs.uuid.as_str()), ("device", &device.name)];
                    family.sample(&labels, sectors.saturating_mul(SECTOR) as f64);
                }
            }
        }
        btrfs_devices::write(page, &told);
    }

    fn write_layouts(&mut self, page: &mut Page) {
        type Value = fn(&str, &Layout, usize) -> Option<f64>;
        let families: [(&str, &str, Value); 3] = [
            (
                "node_btrfs_used_bytes",
                "Space that a kind of data uses in a layout.",
                |_, layout, _| layout.used.now.map(|bytes| bytes as f64),
            ),
            (
                "node_btrfs_size_bytes",
                "Space that is allocated to a kind of data in a layout.",
                |_, layout, _| layout.total.now.map(|bytes| bytes as f64),
            ),
            (
                "node_btrfs_allocation_ratio",
                "How many bytes of disks a byte of a kind of data takes in a layout.",
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
