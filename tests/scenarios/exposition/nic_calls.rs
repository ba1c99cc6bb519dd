//! What the kernel of these tests answers to `NicCalls`: one interface of a KubeVirt guest with two
//! of four queues, as Linux 6.11 and later tell of them.

use nix::errno::Errno;
use virtfleet_agent_core::virtio::{Channels, Coalescing, Counters, Direction, Rings};
use virtfleet_agent_host::{NicCalls, QueueCounters};

use crate::exposition::world::FakeKernel;

impl NicCalls for FakeKernel {
    fn channels(&self, nic: &str) -> Result<Option<Channels>, Errno> {
        known(nic)?;
        Ok(Some(Channels {
            current: 2,
            possible: 4,
        }))
    }
    fn set_channels(&self, _nic: &str, _combined: u32) -> Result<(), Errno> {
        unreachable!("a page changes nothing")
    }
    fn rings(&self, nic: &str) -> Result<Option<Rings>, Errno> {
        known(nic)?;
        Ok(Some(Rings {
            rx: 256,
            tx: 256,
            rx_possible: 1024,
            tx_possible: 1024,
        }))
    }
    fn set_rings(&self, _nic: &str, _rx: u32, _tx: u32) -> Result<(), Errno> {
        unreachable!("a page changes nothing")
    }
    fn coalescing(&self, nic: &str) -> Result<Option<Coalescing>, Errno> {
        known(nic)?;
        Ok(None)
    }
    fn statistics(&self, nic: &str) -> Result<Vec<(String, u64)>, Errno> {
        known(nic)?;
        let all = [
            ("rx_drops", 3),
            ("rx0_drops", 3),
            ("rx0_kicks", 120),
            ("rx1_drops", 0),
            ("rx1_kicks", 90),
            ("tx0_kicks", 310),
            ("tx0_tx_timeouts", 1),
            ("tx1_kicks", 5),
            ("tx1_tx_timeouts", 0),
        ];
        Ok(all.map(|(name, value)| (name.to_owned(), value)).into())
    }
    fn queue_counters(&self, index: u32) -> Result<Option<Vec<QueueCounters>>, Errno> {
        if index != 2 {
            return Err(Errno::ENODEV);
        }
        let queue = |direction, index, packets, stops| QueueCounters {
            direction,
            index,
            counters: Counters {
                packets: Some(packets),
                bytes: Some(1400 * packets),
                stops,
                wakes: stops,
                ..Counters::default()
            },
        };
        Ok(Some(vec![
            queue(Direction::Receive, 0, 31_007, None),
            queue(Direction::Receive, 1, 38_888, None),
            queue(Direction::Transmit, 0, 40_213, Some(2)),
            queue(Direction::Transmit, 1, 12, Some(0)),
        ]))
    }
}

fn known(nic: &str) -> Result<(), Errno> {
    if nic == "eth0" { Ok(()) } else { Err(Errno::ENODEV) }
}
