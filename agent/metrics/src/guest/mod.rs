//! Metrics for admins of Kubernetes nodes that no other exporter has: `virtfleet_guest_*`.
//!
//! An unreadable file that another collector reads too does not make these collectors fail: its
//! values are missing here, and the other collector reports the failure.

mod certificates;
mod cgroups;
mod files;
mod memory;
mod node;
mod time;
mod units;

use super::Entry;

/// The collectors of this group by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::on(
        "guest_certificates",
        "Validity of kubelet's certificates",
        certificates::new,
    ),
    Entry::on(
        "guest_cgroups",
        "CPU, memory, pressure and OOM kills of pods and services",
        cgroups::new,
    ),
    Entry::on(
        "guest_memory",
        "Balloon, swap, zram, huge pages and merged pages",
        memory::new,
    ),
    Entry::on(
        "guest_node",
        "Steal, headroom, filesystems that became read-only, and whether a reboot is required",
        node::new,
    ),
    Entry::on(
        "guest_time",
        "Time synchronization service, and whether the clock is set",
        time::new,
    ),
    Entry::on(
        "guest_units",
        "Failed units, and whether kubelet and the container runtime are up",
        units::new,
    ),
];
