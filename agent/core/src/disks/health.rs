//! How a declared disk is doing while it is in its place: whether it answers, what its filesystem has noted, and when it will be full.

pub mod findings;
pub mod trend;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use trend::Point;

/// What was said when the filesystem was asked for its space.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is", content = "reason")]
pub enum Answer {
    /// It was not asked, or who asked may not.
    #[default]
    Unknown,
    /// It answers.
    Yes,
    /// Not in time.
    Silent,
    /// An error, e.g. `EIO`: what the kernel gives when it has shut the filesystem down.
    Error(String),
}

/// How much of something is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Bytes, or inodes.
    pub used: u64,
    /// What others than root may still use.
    pub available: u64,
}

impl Usage {
    /// What is used when nothing is left, as df(1) counts: without what is kept for root.
    pub fn full(&self) -> u64 {
        self.used.saturating_add(self.available)
    }

    /// Used percent, 0 to 100; of nothing at all, 0.
    pub fn percent(&self) -> f64 {
        match self.full() {
            0 => 0.0,
            full => self.used as f64 * 100.0 / full as f64,
        }
    }
}

/// One look at a disk in its place. What the kernel does not say is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Look {
    /// The kernel's name of what the filesystem or swap area stands on, e.g. `vdb`, or `dm-0` for a LUKS container.
    pub block: String,
    /// Whether the filesystem answers.
    pub answer: Answer,
    /// Whether the filesystem is read-only; none for swap.
    pub read_only: Option<bool>,
    /// Bytes.
    pub space: Option<Usage>,
    /// Inodes; none for btrfs, which has no limit, and for swap.
    pub inodes: Option<Usage>,
    /// Errors that the filesystem has counted, by kind: ext4 in its superblock (`error`, `warning`), btrfs of each of its devices (`write`, `read`, `flush`,
    /// `corruption`, `generation`).
    pub errors: BTreeMap<String, u64>,
    /// When ext4 noted its last error, seconds since 1970.
    pub last_error_s: Option<u64>,
    /// The function of the kernel that noted it.
    pub last_error_in: Option<String>,
    /// Bytes that were written to an ext4 since it was made.
    pub written_bytes: Option<u64>,
    /// I/O errors of a SCSI disk since it was attached. Commands that a disk does not know count, too.
    pub io_errors: Option<u64>,
    /// Timeouts of a SCSI disk since it was attached.
    pub io_timeouts: Option<u64>,
}

impl Look {
    /// How often the filesystem has met an error. Warnings of ext4 are none.
    pub fn error_count(&self) -> u64 {
        let errors = self.errors.iter().filter(|(kind, _)| *kind != "warning");
        errors.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

/// A look, and what became of it over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Health {
    /// The last look.
    pub look: Look,
    /// Looks of this boot, oldest first: see [`trend::add`].
    pub points: Vec<Point>,
    /// Seconds until the space is used up, at the pace of the window; none when it is not filling, and while too little is known.
    pub space_full_in_s: Option<f64>,
    /// The same for inodes.
    pub inodes_full_in_s: Option<f64>,
}

impl Health {
    /// From a look at `at_ns` (boot clock), and what was known of this very filesystem before.
    pub fn after(previous: Option<&Self>, look: Look, at_ns: u64) -> Self {
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
