//! Health of a mounted disk: whether it responds, its recorded errors, and when it will be full.

pub mod findings;
pub mod trend;

pub use super::usage::Usage;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use trend::Point;

/// Result of a statfs of the filesystem.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is", content = "reason")]
pub enum StatfsResult {
    /// Not requested, or not permitted.
    #[default]
    Unknown,
    /// The filesystem responded.
    Yes,
    /// No response before the timeout.
    Silent,
    /// Error, e.g. `EIO`, which the kernel returns after it has shut the filesystem down.
    Error(String),
}

/// Snapshot of a mounted disk. Values that the kernel does not report are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskSample {
    /// Kernel name of the block device of the filesystem or swap area, e.g. `vdb`, or `dm-0` for
    /// LUKS.
    pub block: String,
    /// Whether the filesystem responds.
    pub answer: StatfsResult,
    /// Whether the filesystem is read-only; `None` for swap.
    pub read_only: Option<bool>,
    /// Error of a write probe, if the filesystem rejects writes and its mount options do not say
    /// so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_error: Option<String>,
    /// Bytes.
    pub space: Option<Usage>,
    /// Inodes; `None` for btrfs, which has no limit, and for swap.
    pub inodes: Option<Usage>,
    /// Errors that the filesystem recorded, by kind: ext4 in its superblock (`error`, `warning`),
    /// btrfs per device (`write`, `read`, `flush`, `corruption`, `generation`).
    pub errors: BTreeMap<String, u64>,
    /// Time of ext4's last error, seconds since 1970.
    pub last_error_s: Option<u64>,
    /// Kernel function that recorded the last error.
    pub last_error_in: Option<String>,
    /// Bytes written to an ext4 since it was made.
    pub written_bytes: Option<u64>,
    /// I/O errors of a SCSI disk since it was attached, including unsupported commands.
    pub io_errors: Option<u64>,
    /// Timeouts of a SCSI disk since it was attached.
    pub io_timeouts: Option<u64>,
}

impl DiskSample {
    /// Number of errors that the filesystem recorded, without the warnings of ext4.
    pub fn error_count(&self) -> u64 {
        let errors = self.errors.iter().filter(|(kind, _)| *kind != "warning");
        errors.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

/// Snapshot with its history.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Health {
    /// Last snapshot.
    pub look: DiskSample,
    /// Data points of this boot, oldest first: see [`trend::add`].
    pub points: Vec<Point>,
    /// Seconds until the space is used up, at the rate of the window; `None` if usage does not grow
    /// or there are too few points.
    pub space_full_in_s: Option<f64>,
    /// Seconds until the inodes are used up.
    pub inodes_full_in_s: Option<f64>,
}

impl Health {
    /// Combines a snapshot at `at_ns` (`CLOCK_BOOTTIME`) with the history of the same filesystem.
    pub fn after(previous: Option<&Self>, look: DiskSample, at_ns: u64) -> Self {
        let before = previous.map_or(&[][..], |previous| &previous.points);
        let mut points = before.to_vec();
        if let Some(space) = look.space {
            let point = Point {
                at_ns,
                bytes: space.used,
                inodes: look.inodes.map(|inodes| inodes.used),
                io_errors: look.io_errors,
                io_timeouts: look.io_timeouts,
            };
            trend::add(&mut points, point);
        }
        Self {
            space_full_in_s: look
                .space
                .and_then(|usage| trend::full_in(&points, usage, |point| Some(point.bytes))),
            inodes_full_in_s: look
                .inodes
                .and_then(|usage| trend::full_in(&points, usage, |point| point.inodes)),
            points,
            look,
        }
    }
}
