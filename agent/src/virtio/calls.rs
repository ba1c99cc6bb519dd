//! Who asks the drivers of network interfaces.

use nix::errno::Errno;
use virtfleet_agent_core::virtio::{Channels, Coalescing, Rings};

use crate::host::{NicCalls, QueueCounters};

/// The kernel.
pub(super) fn of_kernel() -> impl NicCalls {
    Silent
}

/// Answers that no driver supports anything.
struct Silent;

impl NicCalls for Silent {
    fn channels(&self, _: &str) -> Result<Option<Channels>, Errno> {
        Ok(None)
    }
    fn set_channels(&self, _: &str, _: u32) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    fn rings(&self, _: &str) -> Result<Option<Rings>, Errno> {
        Ok(None)
    }
    fn set_rings(&self, _: &str, _: u32, _: u32) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    fn coalescing(&self, _: &str) -> Result<Option<Coalescing>, Errno> {
        Ok(None)
    }
    fn statistics(&self, _: &str) -> Result<Vec<(String, u64)>, Errno> {
        Ok(Vec::new())
    }
    fn queue_counters(&self, _: u32) -> Result<Option<Vec<QueueCounters>>, Errno> {
        Ok(None)
    }
}
