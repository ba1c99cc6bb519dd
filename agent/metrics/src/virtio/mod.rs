//! virtio devices, their queues and interrupts, and their findings.
//!
//! ```text
//! sysfs, /proc/interrupts, ethtool, netlink ─▶ watch ─▶ Machine ─┬─▶ devices, nics, disks
//! /run/virtfleet/state/nic.json ────────────────────────────────────────┴─▶ standing (with the findings)
//! ```

mod collector;
mod devices;
mod disks;
mod limits;
mod nics;
mod standing;
mod watch;

use super::Entry;
use limits::MAX_EXPORTED;

/// The collectors of this group by name.
pub(super) const ENTRIES: &[Entry] = &[Entry::on(
    "virtio",
    "virtio devices, their queues and interrupts, and their findings",
    collector::new,
)];
