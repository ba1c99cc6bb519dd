//! Who answers for interfaces of a tree of files.

use std::sync::Arc;

use nix::{errno::Errno, libc};
use virtfleet_agent_core::virtio::{Channels, Coalescing, Rings};

use super::{NicCalls, QueueCounters};
use crate::{Kernel, Roots};

/// Who is asked about the interfaces below these roots: the kernel where its sysfs is there, wherever that is mounted, and else nobody. An interface of
/// a tree of files may have the name of one of ours, of which there is nothing to be told, and nothing to be set.
pub fn nic_calls(roots: &Roots) -> Arc<dyn NicCalls> {
    let real = nix::sys::statfs::statfs(&roots.sysfs)
        .is_ok_and(|found| i128::from(found.filesystem_type().0) == i128::from(libc::SYSFS_MAGIC));
    if real { Arc::new(Kernel) } else { Arc::new(Nobody) }
}

/// Answers that no driver supports anything.
struct Nobody;

impl NicCalls for Nobody {
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
    fn an_interface_of_a_tree_is_not_one_of_ours() {
        // Every kernel has it, and says ENODEV of what it does not have.
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
