//! A mount that uses a block device.

use virtfleet_agent_core::disks::DevNumber;

/// A mount of any process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UsedMount {
    /// Mount point. Outside of PID 1's namespace, with the process.
    pub(super) at: String,
    /// True if PID 1 has this mount.
    pub(super) first: bool,
    /// Device number. For a filesystem with its own number (btrfs), the number of its source.
    pub(super) number: DevNumber,
}
