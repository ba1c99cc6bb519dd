//! `dmmultipath`: multipath devices and their paths, from `/sys/block`.

use std::{borrow::Cow, path::Path};

use virtfleet_agent_host::{Attribute, AttributeBuffer, Devices, attribute_buffer};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped, attributes::number};

/// Sector size in sysfs in bytes, independent of the disk.
const SECTOR_BYTES: u64 = 512;

/// Computes a value from a device's state and its numbers of paths.
type Value = fn((bool, u64), (usize, usize)) -> f64;

struct Multipath {
    devices: Devices<DeviceMapperDevice>,
    buffer: Box<AttributeBuffer>,
}

struct DeviceMapperDevice {
    uuid_file: Attribute,
    uuid: String,
    name_file: Attribute,
    name: String,
    suspended_file: Attribute,
    size_file: Attribute,
    /// Suspended, and size in bytes. `None` if it is gone or not a multipath device.
    now: Option<(bool, u64)>,
    paths: Devices<PathDevice>,
}

struct PathDevice {
    state_file: Attribute,
    state: Option<String>,
}

impl DeviceMapperDevice {
    fn new(path: &Path) -> Self {
        Self {
            uuid_file: Attribute::new(path.join("dm/uuid")),
            uuid: String::new(),
            name_file: Attribute::new(path.join("dm/name")),
            name: String::new(),
            suspended_file: Attribute::new(path.join("dm/suspended")),
            size_file: Attribute::new(path.join("size")),
            now: None,
            paths: Devices::new(path.join("slaves")),
        }
    }

    fn read(&mut self, buffer: &mut AttributeBuffer, skipped: &mut Skipped) {
        self.now = None;
        // The UUID is set at creation and does not change, but appears shortly after the device.
        if self.uuid.is_empty()
            && let Ok(uuid) = self.uuid_file.read(buffer)
        {
            self.uuid = uuid.into_owned();
        }
        if !self.uuid.starts_with("mpath-") {
            return;
        }
        let Ok(name) = self.name_file.read(buffer) else {
            return;
        };
        self.name.clear();
        self.name.push_str(&name);
        let suspended = number::<u64>(&mut self.suspended_file, buffer, skipped);
        let sectors = number::<u64>(&mut self.size_file, buffer, skipped);
        let (Some(suspended), Some(sectors)) = (suspended, sectors) else {
            return;
        };
        let refreshed = self.paths.refresh(
            |_| true,
            |_, path| PathDevice {
                // The entry is a link to the disk.
                state_file: Attribute::new(path.join("device/state")),
                state: None,
            },
        );
        match refreshed {
            Err(error) if error.is_missing() => {}
            // Without a list, there is no number of paths.
            done => {
                if skipped.take(done).is_none() {
                    return;
                }
            }
        }
        for path in self.paths.all() {
            path.kept.state = path.kept.state_file.read(buffer).ok().map(Cow::into_owned);
        }
        self.now = Some((suspended == 1, sectors.saturating_mul(SECTOR_BYTES)));
    }

    /// Number of all paths and of working ones: running SCSI disks, live NVMe controllers.
    fn counts(&self) -> (usize, usize) {
        let states = || {
            self.paths
                .held()
                .iter()
                .filter_map(|path| path.kept.state.as_deref())
        };
        let works = |state: &&str| matches!(*state, "running" | "live");
        (states().count(), states().filter(works).count())
    }
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Multipath {
        devices: Devices::new(context.roots.sys("block")),
        buffer: attribute_buffer(),
    }))
}

impl Collector for Multipath {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let refreshed = self.devices.refresh(
            |name| name.starts_with("dm-"),
            |_, path| DeviceMapperDevice::new(path),
        );
        match refreshed {
            Err(error) if error.is_missing() || error.is_denied() => {
                return Err(CollectError::no_data("this kernel has no block devices"));
            }
            done => done?,
        };
        let mut skipped = Skipped::default();
        for device in self.devices.all() {
            device.kept.read(&mut self.buffer, &mut skipped);
        }
        let mut family = page.family(
            "node_dmmultipath_device_info",
            "Properties of a multipath device, always 1.",
            MetricType::Gauge,
        );
        for device in self
            .devices
            .all()
            .iter()
            .filter(|device| device.kept.now.is_some())
        {
            let labels = [
                ("device", device.kept.name.as_str()),
                ("sysfs_name", &device.name),
                ("uuid", &device.kept.uuid),
            ];
            family.sample(&labels, 1.0);
        }
        let families: [(&str, &str, Value); 5] = [
            (
                "node_dmmultipath_device_active",
                "Whether a multipath device is active (1) or suspended (0).",
                |(suspended, _), _| f64::from(u8::from(!suspended)),
            ),
            (
                "node_dmmultipath_device_size_bytes",
                "Size of a multipath device in bytes.",
                |(_, bytes), _| bytes as f64,
            ),
            (
                "node_dmmultipath_device_paths",
                "Number of paths of a multipath device.",
                |_, (all, _)| all as f64,
            ),
            (
                "node_dmmultipath_device_paths_active",
                "Number of working paths of a multipath device.",
                |_, (_, work)| work as f64,
            ),
            (
                "node_dmmultipath_device_paths_failed",
                "Number of failed paths of a multipath device.",
                |_, (all, work)| (all - work) as f64,
            ),
        ];
        for (name, help, value) in families {
            let mut family = page.family(name, help, MetricType::Gauge);
            for device in self.devices.all() {
                let Some(now) = device.kept.now else { continue };
                let value = value(now, device.kept.counts());
                let labels = [
                    ("device", device.kept.name.as_str()),
                    ("sysfs_name", &device.name),
                ];
                family.sample(&labels, value);
            }
        }
        let mut family = page.family(
            "node_dmmultipath_path_state",
            "The state of a path of a multipath device, always 1.",
            MetricType::Gauge,
        );
        for device in self
            .devices
            .all()
            .iter()
            .filter(|device| device.kept.now.is_some())
        {
            for path in device.kept.paths.held() {
                if let Some(state) = &path.kept.state {
                    let labels = [
                        ("device", device.kept.name.as_str()),
                        ("path", &path.name),
                        ("state", state),
                    ];
                    family.sample(&labels, 1.0);
                }
            }
        }
        skipped.end()
    }
}
