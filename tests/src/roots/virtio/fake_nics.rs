//! Fake drivers of network interfaces, whose answers the test defines.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::errno::Errno;
use virtfleet_agent_core::virtio::{Channels, Coalescing, Rings};
use virtfleet_agent_host::{NicCalls, QueueCounters};

use super::queues::{queues, spread};

/// Answers of an interface's driver. `None`: the driver does not support it.
#[derive(Debug, Clone, Default)]
pub struct FakeNic {
    /// Its interface index.
    pub index: u32,
    /// Queue pairs.
    pub channels: Option<Channels>,
    /// Ring sizes.
    pub rings: Option<Rings>,
    /// Interrupt coalescing.
    pub coalescing: Option<Coalescing>,
    /// The driver's counters.
    pub statistics: Vec<(String, u64)>,
    /// Counters of the netlink family `netdev`.
    pub queue_counters: Option<Vec<QueueCounters>>,
    /// If set, every request fails with this error.
    pub refuses: Option<Errno>,
}

/// Answers from a map by interface name; a missing interface is gone (`ENODEV`). Changes take
/// effect, also in the tree, and are recorded.
#[derive(Debug, Default)]
pub struct FakeNics {
    nics: Mutex<BTreeMap<String, FakeNic>>,
    set: Mutex<Vec<String>>,
    /// The tree, and its online CPUs.
    tree: Option<(PathBuf, Vec<u32>)>,
}

impl FakeNics {
    /// Drivers for the interfaces of a tree.
    pub(super) fn below(dir: &Path, online: Vec<u32>) -> Self {
        Self {
            tree: Some((dir.to_owned(), online)),
            ..Self::default()
        }
    }
    pub(super) fn online(&self) -> &[u32] {
        self.tree.as_ref().map_or(&[], |tree| &tree.1)
    }

    /// Adds an interface, or replaces it.
    pub fn add(&self, name: &str, nic: FakeNic) {
        lock(&self.nics).insert(name.to_owned(), nic);
    }
    /// Removes an interface.
    pub fn remove(&self, name: &str) {
        lock(&self.nics).remove(name);
    }
    /// Changes an interface; does nothing if it does not exist.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut FakeNic)) {
        lock(&self.nics).get_mut(name).map(change);
    }
    /// The requested changes in order, including refused ones: `eth0 channels 4`, `eth0 rings 256
    /// 256`.
    pub fn set(&self) -> Vec<String> {
        lock(&self.set).clone()
    }

    fn ask<T>(&self, nic: &str, answer: impl FnOnce(&mut FakeNic) -> T) -> Result<T, Errno> {
        let mut nics = lock(&self.nics);
        let nic = nics.get_mut(nic).ok_or(Errno::ENODEV)?;
        nic.refuses.map_or_else(|| Ok(answer(nic)), Err)
    }
}

impl NicCalls for FakeNics {
    fn channels(&self, nic: &str) -> Result<Option<Channels>, Errno> {
        self.ask(nic, |nic| nic.channels)
    }
    fn set_channels(&self, nic: &str, combined: u32) -> Result<(), Errno> {
        lock(&self.set).push(format!("{nic} channels {combined}"));
        let possible = self.ask(nic, |nic| match &mut nic.channels {
            None => Err(Errno::EOPNOTSUPP),
            Some(channels) if combined == 0 || combined > channels.possible => Err(Errno::EINVAL),
            Some(channels) => {
                channels.current = combined;
                Ok(channels.possible)
            }
        })??;
        let Some((dir, online)) = &self.tree else {
            return Ok(());
        };
        let folder = dir.join("sys/class/net").join(nic);
        let cpus = |queue| spread(online, combined, queue);
        queues(&folder, combined, possible, cpus).map_err(|_| Errno::EIO)
    }
    fn rings(&self, nic: &str) -> Result<Option<Rings>, Errno> {
        self.ask(nic, |nic| nic.rings)
    }
    fn set_rings(&self, nic: &str, rx: u32, tx: u32) -> Result<(), Errno> {
        lock(&self.set).push(format!("{nic} rings {rx} {tx}"));
        self.ask(nic, |nic| match &mut nic.rings {
            None => Err(Errno::EOPNOTSUPP),
            Some(rings) if rx > rings.rx_possible || tx > rings.tx_possible => Err(Errno::EINVAL),
            Some(rings) => {
                (rings.rx, rings.tx) = (rx, tx);
                Ok(())
            }
        })?
    }
    fn coalescing(&self, nic: &str) -> Result<Option<Coalescing>, Errno> {
        self.ask(nic, |nic| nic.coalescing)
    }
    fn statistics(&self, nic: &str) -> Result<Vec<(String, u64)>, Errno> {
        self.ask(nic, |nic| nic.statistics.clone())
    }
    fn queue_counters(&self, index: u32) -> Result<Option<Vec<QueueCounters>>, Errno> {
        let nics = lock(&self.nics);
        let nic = nics
            .values()
            .find(|nic| nic.index == index)
            .ok_or(Errno::ENODEV)?;
        nic.refuses.map_or_else(|| Ok(nic.queue_counters.clone()), Err)
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
