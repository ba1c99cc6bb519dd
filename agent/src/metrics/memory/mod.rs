//! Memory and what it is used for (room: `agent/src/metrics`).

mod meminfo;
mod vmstat;

use super::Entry;

/// The room's collectors, by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::on("meminfo", "Memory", meminfo::new),
    Entry::on(
        "vmstat",
        "Paging, swapping, faults and kills for want of memory",
        vmstat::new,
    ),
];
