//! Metric families about the health of declared disks, for the collector `disks`.

use virtfleet_agent_core::disks::{
    health::{DiskSample, StatfsResult, Usage},
    state::DiskState,
};
use virtfleet_wire::exposition::{MetricType, Page};

/// A mounted declared disk and its health.
pub(super) type Row<'a> = (&'a DiskState, DiskSample);

/// Name, HELP, type and value of a family whose only label is `name`.
type Family = (
    &'static str,
    &'static str,
    MetricType,
    fn(&DiskSample) -> Option<f64>,
);

fn used(usage: Option<Usage>) -> Option<f64> {
    usage.map(|usage| usage.used as f64)
}

fn available(usage: Option<Usage>) -> Option<f64> {
    usage.map(|usage| usage.available as f64)
}

const FAMILIES: [Family; 10] = [
    (
        "virtfleet_disk_answers",
        "Whether the filesystem of a declared disk responds; 0 if it hangs or was shut down.",
        MetricType::Gauge,
        |look| match look.answer {
            StatfsResult::Unknown => None,
            StatfsResult::Yes => Some(1.0),
            StatfsResult::Silent | StatfsResult::Error(_) => Some(0.0),
        },
    ),
    (
        "virtfleet_disk_read_only",
        "Whether a declared disk is mounted read-only.",
        MetricType::Gauge,
        |look| look.read_only.map(|yes| f64::from(u8::from(yes))),
    ),
    (
        "virtfleet_disk_used_bytes",
        "Used bytes of a declared disk, or of its swap area.",
        MetricType::Gauge,
        |look| used(look.space),
    ),
    (
        "virtfleet_disk_available_bytes",
        "Bytes of a declared disk that are available to non-root users.",
        MetricType::Gauge,
        |look| available(look.space),
    ),
    (
        "virtfleet_disk_used_inodes",
        "Used inodes of a declared disk.",
        MetricType::Gauge,
        |look| used(look.inodes),
    ),
    (
        "virtfleet_disk_available_inodes",
        "Free inodes of a declared disk.",
        MetricType::Gauge,
        |look| available(look.inodes),
    ),
    (
        "virtfleet_disk_filesystem_last_error_timestamp_seconds",
        "Time of the last error of the filesystem of a declared disk (ext4), in seconds since 1970.",
        MetricType::Gauge,
        |look| look.last_error_s.map(|time| time as f64),
    ),
    (
        "virtfleet_disk_filesystem_written_bytes_total",
        "Bytes written to the filesystem of a declared disk since its creation (ext4).",
        MetricType::Counter,
        |look| look.written_bytes.map(|bytes| bytes as f64),
    ),
    (
        "virtfleet_disk_io_errors_total",
        "I/O errors of a declared disk since it was attached (SCSI); commands that it does not support are included.",
        MetricType::Counter,
        |look| look.io_errors.map(|count| count as f64),
    ),
    (
        "virtfleet_disk_io_timeouts_total",
        "I/O timeouts of a declared disk since it was attached (SCSI).",
        MetricType::Counter,
        |look| look.io_timeouts.map(|count| count as f64),
    ),
];

pub(super) fn write(page: &mut Page, rows: &[Row<'_>]) {
    for (name, help, kind, value) in FAMILIES {
        let mut family = page.family(name, help, kind);
        for (disk, look) in rows {
            if let Some(value) = value(look) {
                family.sample(&[("name", disk.name.as_str())], value);
            }
        }
    }
    let mut family = page.family(
        "virtfleet_disk_filesystem_errors_total",
        "Errors counted by the filesystem of a declared disk, by kind (ext4, btrfs).",
        MetricType::Counter,
    );
    for (disk, look) in rows {
        for (kind, count) in &look.errors {
            family.sample(&[("name", disk.name.as_str()), ("kind", kind)], *count as f64);
        }
    }
    let mut family = page.family(
        "virtfleet_disk_full_in_seconds",
        "Predicted time at which a declared disk is full, from its growth in the last hours, as of the last reconcile run; absent while it is not filling.",
        MetricType::Gauge,
    );
    for (disk, _) in rows {
        let Some(health) = disk.health.as_ref().filter(|_| !disk.mount_point.is_empty()) else {
            continue;
        };
        for (resource, seconds) in [
            ("space", health.space_full_in_s),
            ("inodes", health.inodes_full_in_s),
        ] {
            if let Some(seconds) = seconds {
                family.sample(&[("name", disk.name.as_str()), ("resource", resource)], seconds);
            }
        }
    }
}
