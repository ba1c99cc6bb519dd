//! A driver with answers set by a test.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::errno::Errno;
use virtfleet_agent_core::virtio::{Channels, Coalescing, Rings};

use super::{NicCalls, QueueCounters};

/// State of an interface. `None`: its driver does not support it.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeNic {
    pub(crate) index: u32,
    pub(crate) channels: Option<Channels>,
    pub(crate) rings: Option<Rings>,
    pub(crate) coalescing: Option<Coalescing>,
    pub(crate) statistics: Vec<(String, u64)>,
    pub(crate) queue_counters: Option<Vec<QueueCounters>>,
    /// Error of every query.
    pub(crate) refuses: Option<Errno>,
}

/// Answers from a map by name; an interface that is not in it is gone (`ENODEV`). Changes are
/// recorded and take effect.
#[derive(Debug, Default)]
pub(crate) struct FakeNics {
    nics: Mutex<BTreeMap<String, FakeNic>>,
    set: Mutex<Vec<String>>,
}

impl FakeNics {
    pub(crate) fn new<'n>(nics: impl IntoIterator<Item = (&'n str, FakeNic)>) -> Self {
        let nics = nics.into_iter().map(|(name, nic)| (name.to_owned(), nic));
        Self {
            nics: Mutex::new(nics.collect()),
            set: Mutex::default(),
        }
    }
    /// The requested changes in order, including rejected ones: `eth0 channels 4`, `eth0 rings 256
    /// 256`.
    pub(crate) fn set(&self) -> Vec<String> {
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
        let set = self.ask(nic, |nic| match &mut nic.channels {
            None => Err(Errno::EOPNOTSUPP),
            Some(channels) if combined == 0 || combined > channels.possible => Err(Errno::EINVAL),
            Some(channels) => {
                channels.current = combined;
                Ok(())
            }
        })?;
        lock(&self.set).push(format!("{nic} channels {combined}"));
        set
    }
    fn rings(&self, nic: &str) -> Result<Option<Rings>, Errno> {
        self.ask(nic, |nic| nic.rings)
    }
    fn set_rings(&self, nic: &str, rx: u32, tx: u32) -> Result<(), Errno> {
        let set = self.ask(nic, |nic| match &mut nic.rings {
            None => Err(Errno::EOPNOTSUPP),
            Some(rings) if rx > rings.rx_possible || tx > rings.tx_possible => Err(Errno::EINVAL),
            Some(rings) => {
                (rings.rx, rings.tx) = (rx, tx);
                Ok(())
            }
        })?;
        lock(&self.set).push(format!("{nic} rings {rx} {tx}"));
        set
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

#[test]
fn changes_take_effect() {
    let channels = |current| Channels { current, possible: 4 };
    let rings = Rings {
        rx_possible: 1024,
        tx_possible: 1024,
        ..Rings::default()
    };
    let nic = FakeNic {
        channels: Some(channels(1)),
        rings: Some(rings),
        ..FakeNic::default()
    };
    let nics = FakeNics::new([("eth0", nic), ("eth1", FakeNic::default())]);
    nics.set_channels("eth0", 4).unwrap();
    assert_eq!(nics.set_channels("eth0", 5), Err(Errno::EINVAL));
    assert_eq!(nics.set_channels("eth1", 1), Err(Errno::EOPNOTSUPP));
    assert_eq!(nics.set_channels("eth2", 1), Err(Errno::ENODEV));
    nics.set_rings("eth0", 512, 256).unwrap();
    assert_eq!(nics.channels("eth0").unwrap(), Some(channels(4)));
    assert_eq!(nics.rings("eth0").unwrap().unwrap().rx, 512);
    assert_eq!(
        nics.set(),
        [
            "eth0 channels 4",
            "eth0 channels 5",
            "eth1 channels 1",
            "eth0 rings 512 256"
        ]
    );
}
