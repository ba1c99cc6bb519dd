//! Disks, filesystems and the drivers above them (room: `agent/src/metrics`).

mod diskstats;
mod filesystem;
mod udev;

use super::Entry;

/// The room's collectors, by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::on(
        "diskstats",
        "I/O of block devices, and what they are",
        diskstats::new,
    ),
    Entry::on(
        "filesystem",
        "Space and state of mounted filesystems",
        filesystem::new,
    ),
];
