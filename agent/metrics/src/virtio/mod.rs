//! virtio devices, their queues and interrupts, and their findings.
//!
//! ```text
//! sysfs, /proc/interrupts, ethtool, netlink ─▶ watch ─▶ Machine ─┬─▶ devices, nics, disks
//! /run/virtfleet/state/nic.json ────────────────────────────────────────┴─▶ standing (with the findings)
//! ```

mod collector;
mod devices;
mod disks;
mod nics;
mod standing;
mod watch;

use super::Entry;

/// The collectors of this group by name.
pub(super) const ENTRIES: &[Entry] = &[Entry::on(
    "virtio",
    "virtio devices, their queues and interrupts, and their findings",
    collector::new,
)];

/// Maximum number of exported devices, interfaces, disks or findings; more than a VM has.
const MAX_EXPORTED: usize = 256;
