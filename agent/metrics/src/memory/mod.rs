//! Memory usage.

mod buddyinfo;
mod ksmd;
mod meminfo;
mod meminfo_numa;
mod slabinfo;
mod swap;
mod vmstat;
mod zoneinfo;

use super::{Entry, Flag};

/// The collectors of this group by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::off("buddyinfo", "Free memory blocks by size", buddyinfo::new),
    Entry::off("ksmd", "Kernel same-page merging", ksmd::new),
    Entry::on("meminfo", "Memory", meminfo::new),
    Entry::off("meminfo_numa", "Memory by NUMA node", meminfo_numa::new),
    Entry::off("slabinfo", "The kernel's slab caches", slabinfo::new).with(&[
        Flag::text("slabs-exclude", "slabsExclude"),
        Flag::text("slabs-include", "slabsInclude"),
    ]),
    Entry::off("swap", "Swap areas", swap::new),
    Entry::on(
        "vmstat",
        "Paging, swapping, page faults and OOM kills",
        vmstat::new,
    )
    .with(&[Flag::text("fields", "fields")]),
    Entry::off("zoneinfo", "Memory by zone", zoneinfo::new),
];
