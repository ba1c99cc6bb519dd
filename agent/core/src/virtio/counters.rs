//! Counters of queues: drivers' own names for them, under one name of ours.

use std::collections::BTreeMap;

use super::{Counters, Direction};

/// The counters of each queue, by which way it goes and its number.
pub type ByQueue = BTreeMap<(Direction, u32), Counters>;

/// What a driver's own counters (`ETHTOOL_GSTATS`) say of the queues: `rx_queue_0_packets`, `tx_queue_0_kicks` (kernel: `drivers/net/virtio_net.c`). Names that
/// are none of a queue are passed over.
pub fn of_statistics(all: &[(String, u64)]) -> ByQueue {
    let mut found = ByQueue::new();
    for (name, value) in all {
        let (direction, rest) = match name.split_once("_queue_") {
            Some(("rx", rest)) => (Direction::Receive, rest),
            Some(("tx", rest)) => (Direction::Transmit, rest),
            _ => continue,
        };
        let Some((Ok(queue), word)) = rest.split_once('_').map(|(queue, word)| (queue.parse(), word)) else {
            continue;
        };
        let field: fn(&mut Counters) -> &mut Option<u64> = match word {
            "packets" => |all| &mut all.packets,
            "bytes" => |all| &mut all.bytes,
            "drops" => |all| &mut all.drops,
            "kicks" => |all| &mut all.kicks,
            "timeouts" | "tx_timeouts" => |all| &mut all.timeouts,
            _ => continue,
        };
        field(found.entry((direction, queue)).or_default()).get_or_insert(*value);
    }
    found
}

/// Adds what the netlink family `netdev` says of the queues to what the driver's own counters say. What both say is the family's.
pub fn merge(all: &mut ByQueue, family: impl IntoIterator<Item = ((Direction, u32), Counters)>) {
    for (key, told) in family {
        let known = all.entry(key).or_default();
        known.packets = told.packets.or(known.packets);
        known.bytes = told.bytes.or(known.bytes);
        known.drops = told.drops.or(known.drops);
        known.kicks = told.kicks.or(known.kicks);
        known.timeouts = told.timeouts.or(known.timeouts);
    }
}
