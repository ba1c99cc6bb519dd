//! Queries and settings of the queues of a network interface, behind a trait for tests.

#[cfg(test)]
pub(crate) mod fake;
mod kernel;
mod unsupported;

use nix::errno::Errno;
use virtfleet_agent_core::virtio::{Channels, Coalescing, Counters, Direction, Rings};

pub use unsupported::nic_calls;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCounters {
    pub direction: Direction,
    /// Index, from 0.
    pub index: u32,
    pub counters: Counters,
}

/// Queries the driver of a network interface. `None`: the driver does not support it. `ENODEV`: the
/// interface is gone.
pub trait NicCalls: Send + Sync {
    /// Current and maximum queue pairs (`ETHTOOL_GCHANNELS`). `None` for an interface without
    /// combined queues.
    ///
    /// # Errors
    /// The interface is gone, or the kernel refuses.
    fn channels(&self, nic: &str) -> Result<Option<Channels>, Errno>;
    /// Sets the number of queue pairs (`ETHTOOL_SCHANNELS`); other queues stay unchanged. Needs
    /// `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// The interface is gone, or the kernel refuses.
    fn set_channels(&self, nic: &str, combined: u32) -> Result<(), Errno>;
    /// Ring sizes (`ETHTOOL_GRINGPARAM`).
    ///
    /// # Errors
    /// The interface is gone, or the kernel refuses.
    fn rings(&self, nic: &str) -> Result<Option<Rings>, Errno>;
    /// Sets the ring sizes (`ETHTOOL_SRINGPARAM`). Needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// The interface is gone, or the kernel refuses.
    fn set_rings(&self, nic: &str, rx: u32, tx: u32) -> Result<(), Errno>;
    /// Interrupt coalescing (`ETHTOOL_GCOALESCE`).
    ///
    /// # Errors
    /// The interface is gone, or the kernel refuses.
    fn coalescing(&self, nic: &str) -> Result<Option<Coalescing>, Errno>;
    /// The driver's own counters by name, in its order (`ETHTOOL_GSTATS`). Empty if it has none.
    ///
    /// # Errors
    /// The interface is gone, or the kernel refuses.
    fn statistics(&self, nic: &str) -> Result<Vec<(String, u64)>, Errno>;
    /// Counters of the interface's queues from the netlink family `netdev`
    /// (`NETDEV_CMD_QSTATS_GET`), by interface index. `None` if the kernel or the driver does not
    /// support it.
    ///
    /// # Errors
    /// The interface is gone, or the kernel refuses.
    fn queue_counters(&self, index: u32) -> Result<Option<Vec<QueueCounters>>, Errno>;
}
