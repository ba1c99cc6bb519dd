//! The kernel's answers.

use std::sync::OnceLock;

use nix::{errno::Errno, sys::socket::SockProtocol};
use virtfleet_agent_core::{
    netlink::{
        generic,
        netdev::{self, Queue},
    },
    virtio::{Channels, Coalescing, Rings, counters::MAX_QUEUES},
};

use super::{NicCalls, QueueCounters};
use crate::{
    Kernel, NetworkError,
    nic::{
        ethtool::Drivers,
        network_calls::{dump, single},
    },
};

impl NicCalls for Kernel {
    fn channels(&self, nic: &str) -> Result<Option<Channels>, Errno> {
        Drivers::open()?.channels(nic)
    }
    fn set_channels(&self, nic: &str, combined: u32) -> Result<(), Errno> {
        Drivers::open()?.set_channels(nic, combined)
    }
    fn rings(&self, nic: &str) -> Result<Option<Rings>, Errno> {
        Drivers::open()?.rings(nic)
    }
    fn set_rings(&self, nic: &str, rx: u32, tx: u32) -> Result<(), Errno> {
        Drivers::open()?.set_rings(nic, rx, tx)
    }
    fn coalescing(&self, nic: &str) -> Result<Option<Coalescing>, Errno> {
        Drivers::open()?.coalescing(nic)
    }
    fn statistics(&self, nic: &str) -> Result<Vec<(String, u64)>, Errno> {
        Drivers::open()?.statistics(nic)
    }
    fn queue_counters(&self, index: u32) -> Result<Option<Vec<QueueCounters>>, Errno> {
        let Some(family) = family()? else {
            return Ok(None);
        };
        // 0 would request all interfaces.
        if index == 0 {
            return Err(Errno::ENODEV);
        }
        let answer = dump(
            SockProtocol::NetlinkGeneric,
            family,
            &netdev::queues_request(index),
            |all: &mut Vec<Queue>, body| {
                if all.len() < 2 * MAX_QUEUES as usize {
                    all.extend(netdev::queue(body).filter(|queue| queue.device == index));
                }
            },
        );
        match answer.map_err(errno) {
            Ok(queues) => Ok(Some(queues.into_iter().map(QueueCounters::from).collect())),
            // The driver has no statistics, or the kernel is too old.
            Err(Errno::EOPNOTSUPP) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl From<Queue> for QueueCounters {
    fn from(queue: Queue) -> Self {
        Self {
            direction: queue.direction,
            index: queue.index,
            counters: queue.counters,
        }
    }
}

/// Number of the family `netdev`. It is built into the kernel, so the number does not change while
/// the agent runs.
fn family() -> Result<Option<u16>, Errno> {
    static KNOWN: OnceLock<Option<u16>> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(*known);
    }
    let mut number = None;
    let request = generic::family_request(netdev::FAMILY);
    let answer = single(SockProtocol::NetlinkGeneric, generic::CONTROL, &request, |body| {
        number = generic::family(body).filter(|(name, _)| name == netdev::FAMILY);
    });
    let number = match answer.map_err(errno) {
        Ok(()) => number.map(|(_, number)| number),
        // No such family, or no generic netlink.
        Err(Errno::ENOENT | Errno::EPROTONOSUPPORT) => None,
        Err(errno) => return Err(errno),
    };
    Ok(*KNOWN.get_or_init(|| number))
}

fn errno(error: NetworkError) -> Errno {
    match error {
        NetworkError::Refused(errno) => errno,
        NetworkError::Unsteady => Errno::EAGAIN,
        NetworkError::TooMany => Errno::EOVERFLOW,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use virtfleet_agent_core::virtio::{Direction, counters};

    use super::*;

    /// This machine's virtio interfaces with their index.
    fn nics() -> Vec<(String, u32)> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
            let virtio = fs::read_link(entry.path().join("device/driver"))
                .is_ok_and(|driver| driver.ends_with("virtio_net"));
            let index = fs::read_to_string(entry.path().join("ifindex"));
            if let (true, Ok(index)) = (virtio, index) {
                found.extend(
                    entry
                        .file_name()
                        .into_string()
                        .ok()
                        .zip(index.trim().parse().ok()),
                );
            }
        }
        found
    }

    #[test]
    fn loopback_has_no_queues() {
        assert_eq!(Kernel.channels("lo"), Ok(None));
        assert_eq!(Kernel.rings("lo"), Ok(None));
        assert_eq!(Kernel.coalescing("lo"), Ok(None));
        assert_eq!(Kernel.statistics("lo"), Ok(Vec::new()));
        assert_eq!(Kernel.queue_counters(1), Ok(None));
        assert!(Kernel.set_rings("lo", 64, 64).is_err());
    }

    #[test]
    fn an_interface_that_is_gone_is_enodev() {
        assert_eq!(Kernel.channels("gone0"), Err(Errno::ENODEV));
        assert_eq!(Kernel.set_channels("gone0", 2), Err(Errno::ENODEV));
        assert_eq!(Kernel.statistics("gone0"), Err(Errno::ENODEV));
        for index in [0, u32::MAX >> 1] {
            let answer = Kernel.queue_counters(index);
            // A kernel without the family has no answer for any interface.
            assert!(matches!(answer, Err(Errno::ENODEV) | Ok(None)), "{answer:?}");
        }
    }

    #[test]
    fn virtio_interfaces_of_this_machine_report_each_queue() {
        for (name, index) in nics() {
            let channels = Kernel.channels(&name).unwrap().unwrap();
            assert!(
                (1..=channels.possible).contains(&channels.current),
                "{name}: {channels:?}"
            );
            let rings = Kernel.rings(&name).unwrap().unwrap_or_default();
            assert!(rings.rx <= rings.rx_possible && rings.tx <= rings.tx_possible);
            Kernel.coalescing(&name).unwrap();
            let mut found = counters::of_statistics(&Kernel.statistics(&name).unwrap());
            assert_eq!(found.len(), 2 * channels.current as usize, "{name}: {found:?}");
            if let Some(queues) = Kernel.queue_counters(index).unwrap() {
                let queues: BTreeMap<_, _> = queues
                    .into_iter()
                    .map(|queue| ((queue.direction, queue.index), queue.counters))
                    .collect();
                counters::merge(&mut found, queues);
            }
            assert_eq!(found.len(), 2 * channels.current as usize, "{name}: {found:?}");
            let first = found[&(Direction::Receive, 0)];
            assert!(first.kicks.is_some() || first.packets.is_some(), "{first:?}");
        }
    }
}
