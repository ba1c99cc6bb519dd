//! Memory and what it is used for.

mod buddyinfo;
mod ksmd;
mod meminfo;
mod meminfo_numa;
mod slabinfo;
mod swap;
mod vmstat;
mod zoneinfo;

use super::{Entry, Flag};

/// The room's collectors, by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::off("buddyinfo", "Free blocks of memory by size", buddyinfo::new),
    Entry::off(
        "ksmd",
        "Pages that are shared because they are the same",
        ksmd::new,
    ),
    Entry::on("meminfo", "Memory", meminfo::new),
    Entry::off("meminfo_numa", "Memory by NUMA node", meminfo_numa::new),
    Entry::off("slabinfo", "The kernel's caches of objects", slabinfo::new).with(&[
        Flag::text("slabs-exclude", "slabsExclude"),
        Flag::text("slabs-include", "slabsInclude"),
    ]),
    Entry::off("swap", "Places to swap to", swap::new),
    Entry::on(
        "vmstat",
        "Paging, swapping, faults and kills for want of memory",
        vmstat::new,
    )
    .with(&[Flag::text("fields", "fields")]),
    Entry::off("zoneinfo", "Memory by zone", zoneinfo::new),
];
