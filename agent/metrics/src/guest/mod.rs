//! What an admin of Kubernetes nodes asks and no exporter says: `virtfleet_guest_*`.
//!
//! Files that other collectors read, too, are never the reason why one of these fails: what they do not say is left out here, and said there.

mod certificates;
mod cgroups;
mod files;
mod memory;
mod node;
mod time;
mod units;

use super::Entry;

/// The room's collectors, by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::on(
        "guest_certificates",
        "Until when kubelet's certificates are valid",
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
        "Steal, headroom, filesystems that turned read-only, and whether a reboot is due",
        node::new,
    ),
    Entry::on(
        "guest_time",
        "Who keeps the clock, and whether it is set",
        time::new,
    ),
    Entry::on(
        "guest_units",
        "Failed units, and whether kubelet and the container runtime are up",
        units::new,
    ),
];
