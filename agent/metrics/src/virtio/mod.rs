//! Virtio devices, their queues and interrupts, and what is wrong with them.
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

/// The room's collectors, by name.
pub(super) const ENTRIES: &[Entry] = &[Entry::on(
    "virtio",
    "Virtio devices, their queues and interrupts, and what is wrong with them",
    collector::new,
)];

/// Devices, interfaces, disks or findings that are told: more than a VM has.
const TOLD: usize = 256;
