//! Disks that work.

use crate::virtio::Disk;

/// Whether the performance of a disk matters: no CD, not read-only, no settings.
pub(super) fn works(disk: &Disk) -> bool {
    !disk.read_only && !disk.name.starts_with("sr") && disk.bytes >= MIN_DATA_BYTES
}

/// Minimum size of a data disk in bytes. Smaller disks contain only settings (cloud-init, config
/// maps, secrets), and their performance does not matter.
pub(super) const MIN_DATA_BYTES: u64 = 64 << 20;
