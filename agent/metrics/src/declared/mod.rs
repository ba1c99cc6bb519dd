//! Metrics of what the settings declare.

mod disk_health;
mod disks;
mod dns;

use super::Entry;

/// The collectors of this group by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::on("disks", "Declared disks and their state", disks::new),
    Entry::on("dns", "The guest's nameservers and their state", dns::new),
];
