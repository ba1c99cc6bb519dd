//! What the settings declare, and how it stands.

mod disk_health;
mod disks;
mod dns;

use super::Entry;

/// The room's collectors, by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::on("disks", "Declared disks and how they stand", disks::new),
    Entry::on("dns", "The guest's nameservers and how they stand", dns::new),
];
