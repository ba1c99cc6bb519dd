//! What is asked of, and told to, the driver of a network interface about its queues, behind a trait, so that tests can answer instead.

#[cfg(test)]
pub(crate) mod fake;
mod kernel;
mod nobody;

use nix::errno::Errno;
use virtfleet_agent_core::virtio::{Channels, Coalescing, Counters, Direction, Rings};

pub use nobody::nic_calls;

/// The counters of one queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Which way.
    pub direction: Direction,
    /// Its number, from 0.
    pub index: u32,
    /// What the kernel counts.
    pub counters: Counters,
}

/// Asks the driver of a network interface. None is what a driver does not support; `ENODEV`, that the interface is gone.
pub trait NicCalls: Send + Sync {
    /// Queue pairs now and at most (`ETHTOOL_GCHANNELS`); none of an interface whose queues go one way only.
    fn channels(&self, nic: &str) -> Result<Option<Channels>, Errno>;
    /// Sets the queue pairs (`ETHTOOL_SCHANNELS`); queues that go one way only stay as they are. Needs `CAP_NET_ADMIN`.
    fn set_channels(&self, nic: &str, combined: u32) -> Result<(), Errno>;
    /// Sizes of the rings (`ETHTOOL_GRINGPARAM`).
    fn rings(&self, nic: &str) -> Result<Option<Rings>, Errno>;
    /// Sets the sizes of the rings (`ETHTOOL_SRINGPARAM`). Needs `CAP_NET_ADMIN`.
    fn set_rings(&self, nic: &str, rx: u32, tx: u32) -> Result<(), Errno>;
    /// Interrupt coalescing (`ETHTOOL_GCOALESCE`).
    fn coalescing(&self, nic: &str) -> Result<Option<Coalescing>, Errno>;
    /// The driver's own counters by name, in its order (`ETHTOOL_GSTATS`); empty when it has none.
    fn statistics(&self, nic: &str) -> Result<Vec<(String, u64)>, Errno>;
    /// The counters of its queues from the netlink family `netdev` (`NETDEV_CMD_QSTATS_GET`), by the interface's number. None where the
    /// kernel or the driver has no such thing.
    fn queue_counters(&self, index: u32) -> Result<Option<Vec<QueueCounters>>, Errno>;
}
