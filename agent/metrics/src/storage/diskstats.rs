//! `diskstats`: I/O of block devices, from `/proc/diskstats`, and their properties, from udev's
//! database and sysfs.
//!
//! A known disk costs one `stat` and one `pread` per scrape and no open: udev replaces its file
//! when properties change, and an attribute of a removed disk fails and is reopened. With very many
//! disks some attributes are opened each time, because the process keeps a bounded number open.

use std::collections::HashMap;

use virtfleet_agent_core::procfs::diskstats::{Disk, disks};
use virtfleet_agent_host::{Attribute, AttributeBuffer, Reread, Roots, Stamped, attribute_buffer};
use virtfleet_wire::exposition::{MetricType, Page};

use super::udev::Udev;
use crate::{CollectError, Collector, Context, RegistryError, Skipped};
use virtfleet_agent_core::settings::{NameFilter, filters};

/// A column of `/proc/diskstats`, its family, HELP, and the factor and divisor to the family's
/// unit.
struct Column(&'static str, &'static str, f64, f64);

/// Sector size here in bytes, independent of the disk (kernel: `Documentation/block/stat.rst`).
const SECTOR_BYTES: f64 = 512.0;
/// Times are in milliseconds.
const MS: f64 = 1000.0;
/// Index of the only gauge.
const IO_NOW: usize = 8;

#[rustfmt::skip]
static COLUMNS: [Column; Disk::COLUMNS] = [
    Column("node_disk_reads_completed_total", "The total number of reads completed successfully.", 1.0, 1.0),
    Column("node_disk_reads_merged_total", "The total number of reads merged.", 1.0, 1.0),
    Column("node_disk_read_bytes_total", "The total number of bytes read successfully.", SECTOR_BYTES, 1.0),
    Column("node_disk_read_time_seconds_total", "The total number of seconds spent by all reads.", 1.0, MS),
    Column("node_disk_writes_completed_total", "The total number of writes completed successfully.", 1.0, 1.0),
    Column("node_disk_writes_merged_total", "The total number of writes merged.", 1.0, 1.0),
    Column("node_disk_written_bytes_total", "The total number of bytes written successfully.", SECTOR_BYTES, 1.0),
    Column("node_disk_write_time_seconds_total", "The total number of seconds spent by all writes.", 1.0, MS),
    Column("node_disk_io_now", "The number of I/Os in progress.", 1.0, 1.0),
    Column("node_disk_io_time_seconds_total", "The total number of seconds spent doing I/Os.", 1.0, MS),
    Column("node_disk_io_time_weighted_seconds_total", "Seconds spent doing I/Os, weighted by their number.", 1.0, MS),
    Column("node_disk_discards_completed_total", "The total number of discards completed successfully.", 1.0, 1.0),
    Column("node_disk_discards_merged_total", "The total number of discards merged.", 1.0, 1.0),
    Column("node_disk_discarded_sectors_total", "The total number of sectors of 512 bytes discarded.", 1.0, 1.0),
    Column("node_disk_discard_time_seconds_total", "The total number of seconds spent by all discards.", 1.0, MS),
    Column("node_disk_flush_requests_total", "The total number of flush requests completed successfully.", 1.0, 1.0),
    Column("node_disk_flush_requests_time_seconds_total", "The total number of seconds spent by all flush requests.", 1.0, MS),
];

struct Diskstats {
    roots: Roots,
    stats: Reread,
    filter: NameFilter,
    devices: HashMap<String, Device>,
    scrape: u64,
    buffer: Box<AttributeBuffer>,
}

/// Cached data of a device.
struct Device {
    number: (u32, u32),
    /// Number of the last scrape that contained the device.
    seen: u64,
    labels: [String; 2],
    udev: Stamped<Udev>,
    /// `None` for a device without its own queue, such as a partition.
    rotational_file: Option<Attribute>,
    rotational: bool,
}

/// A device in this scrape.
struct Row<'a> {
    disk: Disk<'a>,
    device: &'a Device,
    udev: &'a Udev,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.diskstats;
    Ok(Box::new(Diskstats {
        filter: filters::diskstats(settings)?,
        // One record is a disk with all its partitions (kernel: `diskstats_show`) and has no bound.
        stats: Reread::new(context.roots.proc("diskstats")),
        roots: context.roots.clone(),
        devices: HashMap::new(),
        scrape: 0,
        buffer: attribute_buffer(),
    }))
}

impl Collector for Diskstats {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        self.scrape += 1;
        let path = self.stats.path().to_owned();
        let text = self.stats.text()?;
        let mut seen = Vec::new();
        let mut skipped = Skipped::default();
        for disk in skipped.valid(&path, disks(&text)) {
            if !self.filter.takes(disk.name) {
                continue;
            }
            if self
                .devices
                .get(disk.name)
                .is_none_or(|device| device.number != (disk.major, disk.minor))
            {
                self.devices
                    .insert(disk.name.to_owned(), Device::new(&self.roots, &disk));
            }
            let Some(device) = self.devices.get_mut(disk.name) else {
                continue;
            };
            // A repeated name is exported once.
            if device.seen != self.scrape {
                device.seen = self.scrape;
                device.refresh(&self.roots, disk.name, &mut self.buffer);
                seen.push(disk);
            }
        }
        self.devices.retain(|_, device| device.seen == self.scrape);
        let rows: Vec<_> = seen
            .into_iter()
            .filter_map(|disk| {
                let device = self.devices.get(disk.name)?;
                // A guest without udev has no such file.
                let udev = device.udev.held().unwrap_or(&NO_UDEV);
                Some(Row { disk, device, udev })
            })
            .collect();
        write(page, &rows);
        skipped.end()
    }
}

static NO_UDEV: Udev = Udev::none();

impl Device {
    fn new(roots: &Roots, disk: &Disk<'_>) -> Self {
        let (major, minor) = (disk.major, disk.minor);
        Self {
            number: (major, minor),
            seen: 0,
            labels: [major.to_string(), minor.to_string()],
            udev: Stamped::new(roots.udev_data.join(format!("b{major}:{minor}"))),
            rotational_file: Some(rotational_file(roots, disk.name)),
            rotational: false,
        }
    }

    fn refresh(&mut self, roots: &Roots, name: &str, buffer: &mut AttributeBuffer) {
        let mut is_news = false;
        let known = self.udev.get(|bytes| {
            is_news = true;
            Udev::parse(bytes)
        });
        drop(known);
        if is_news && self.rotational_file.is_none() {
            self.rotational_file = Some(rotational_file(roots, name));
        }
        self.rotational = false;
        if let Some(file) = &mut self.rotational_file {
            match file.read(buffer) {
                Ok(text) => self.rotational = text == "1",
                Err(error) if error.is_missing() => self.rotational_file = None,
                Err(_) => {}
            }
        }
    }
}

fn rotational_file(roots: &Roots, name: &str) -> Attribute {
    // sysfs replaces slashes in names by `!`.
    let name = name.replace('/', "!");
    Attribute::new(roots.sys(format!("block/{name}/queue/rotational")))
}

fn write(page: &mut Page, rows: &[Row<'_>]) {
    let mut family = page.family(
        "node_disk_info",
        "Properties of a block device, always 1.",
        MetricType::Gauge,
    );
    for row in rows {
        let labels = [
            ("device", row.disk.name),
            ("major", &row.device.labels[0]),
            ("minor", &row.device.labels[1]),
            ("path", row.udev.get("ID_PATH")),
            ("wwn", row.udev.get("ID_WWN")),
            ("model", row.udev.get("ID_MODEL")),
            ("serial", row.udev.serial()),
            ("revision", row.udev.get("ID_REVISION")),
            ("rotational", if row.device.rotational { "1" } else { "0" }),
        ];
        family.sample(&labels, 1.0);
    }
    for (index, Column(name, help, times, by)) in COLUMNS.iter().enumerate() {
        let kind = if index == IO_NOW {
            MetricType::Gauge
        } else {
            MetricType::Counter
        };
        let mut family = page.family(name, help, kind);
        for row in rows.iter().filter(|row| index < row.disk.columns) {
            let value = row.disk.values[index] as f64 * times / by;
            family.sample(&[("device", row.disk.name)], value);
        }
    }
    info(
        page,
        rows,
        (
            "node_disk_filesystem_info",
            "The filesystem on a block device, always 1.",
        ),
        &[
            ("type", "ID_FS_TYPE"),
            ("usage", "ID_FS_USAGE"),
            ("uuid", "ID_FS_UUID"),
            ("version", "ID_FS_VERSION"),
        ],
    );
    info(
        page,
        rows,
        (
            "node_disk_device_mapper_info",
            "Properties of a device mapper device, always 1.",
        ),
        &[
            ("name", "DM_NAME"),
            ("uuid", "DM_UUID"),
            ("vg_name", "DM_VG_NAME"),
            ("lv_name", "DM_LV_NAME"),
            ("lv_layer", "DM_LV_LAYER"),
        ],
    );
    for (name, help, key) in [
        (
            "node_disk_ata_write_cache",
            "Whether an ATA disk has a write cache.",
            "ID_ATA_WRITE_CACHE",
        ),
        (
            "node_disk_ata_write_cache_enabled",
            "Whether an ATA disk's write cache is enabled.",
            "ID_ATA_WRITE_CACHE_ENABLED",
        ),
        (
            "node_disk_ata_rotation_rate_rpm",
            "An ATA disk's rotation rate in revolutions per minute (0: non-rotating).",
            "ID_ATA_ROTATION_RATE_RPM",
        ),
    ] {
        let mut family = page.family(name, help, MetricType::Gauge);
        for row in rows.iter().filter(|row| !row.udev.get("ID_ATA").is_empty()) {
            if let Some(value) = row.udev.find(key).and_then(|value| value.parse().ok()) {
                family.sample(&[("device", row.disk.name)], value);
            }
        }
    }
}

/// A family with labels from udev, for devices with a value for the first of them.
fn info<const N: usize>(
    page: &mut Page,
    rows: &[Row<'_>],
    (name, help): (&str, &str),
    labels: &[(&'static str, &'static str); N],
) {
    let mut family = page.family(name, help, MetricType::Gauge);
    for row in rows.iter().filter(|row| !row.udev.get(labels[0].1).is_empty()) {
        let mut all = vec![("device", row.disk.name)];
        all.extend(labels.map(|(label, key)| (label, row.udev.get(key))));
        family.sample(&all, 1.0);
    }
}
