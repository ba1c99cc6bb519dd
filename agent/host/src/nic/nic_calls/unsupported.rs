//! Selects the implementation of [`NicCalls`].

use std::sync::Arc;

use nix::{errno::Errno, libc};
use virtfleet_agent_core::virtio::{Channels, Coalescing, Rings};

use super::{NicCalls, QueueCounters};
use crate::{Kernel, Roots};

/// The implementation for these roots: the kernel if they contain the running system's sysfs
/// (mounted anywhere), otherwise one that supports nothing. An interface in a file tree may have
/// the name of a real one, which must neither be read nor changed.
pub fn nic_calls(roots: &Roots) -> Arc<dyn NicCalls> {
    let real = nix::sys::statfs::statfs(&roots.sysfs)
        .is_ok_and(|found| i128::from(found.filesystem_type().0) == i128::from(libc::SYSFS_MAGIC));
    if real {
        Arc::new(Kernel)
    } else {
        Arc::new(Unsupported)
    }
}

/// Answers that no driver supports anything.
struct Unsupported;

impl NicCalls for Unsupported {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_of_a_file_tree_are_not_real_ones() {
        // Every kernel has the loopback device, and answers ENODEV for a missing one.
        assert_eq!(
            nic_calls(&Roots::default()).channels("no-such-nic"),
            Err(Errno::ENODEV)
        );
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            sysfs: dir.path().to_owned(),
            ..Roots::default()
        };
        let calls = nic_calls(&roots);
        assert_eq!(calls.channels("lo"), Ok(None));
        assert_eq!(calls.set_channels("lo", 1), Err(Errno::EOPNOTSUPP));
    }
}
