//! Generic netlink family `netdev` (`linux/netdev.h`, `Documentation/netlink/specs/netdev.yaml`,
//! `net/core/netdev-genl.c`): counters of an interface's queues.
//!
//! The request was added in Linux 6.9 or 6.10. Older kernels answer `EOPNOTSUPP`, or `ENOENT`
//! without the family. They answer the same for interfaces whose driver reports nothing. An
//! interface that is down has no queues.

use super::{attributes, generic, number, put};
use crate::virtio::{Counters, Direction};

pub const FAMILY: &str = "netdev";
/// `NETDEV_CMD_QSTATS_GET`.
const QSTATS_GET: u8 = 12;
/// `NETDEV_QSTATS_SCOPE_QUEUE`: counters per queue.
const SCOPE_QUEUE: u32 = 1;

// NETDEV_A_QSTATS_*.
const IFINDEX: u16 = 1;
const QUEUE_TYPE: u16 = 2;
const QUEUE_ID: u16 = 3;
const SCOPE: u16 = 4;
const RX_PACKETS: u16 = 8;
const RX_BYTES: u16 = 9;
const TX_PACKETS: u16 = 10;
const TX_BYTES: u16 = 11;
const RX_HW_DROPS: u16 = 13;
const TX_HW_DROPS: u16 = 24;
const TX_STOP: u16 = 33;
const TX_WAKE: u16 = 34;

/// Counters of one queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queue {
    /// Interface index.
    pub device: u32,
    pub direction: Direction,
    /// Queue number, from 0.
    pub index: u32,
    /// Counters; `drops` are those of the device (`rx-hw-drops`, `tx-hw-drops`), not of the driver.
    pub counters: Counters,
}

/// Returns the body of the request for the queues of interface `device`.
pub fn queues_request(device: u32) -> Vec<u8> {
    let mut body = generic::head(QSTATS_GET);
    put(&mut body, IFINDEX, &device.to_ne_bytes());
    // A `uint` of the specification has four bytes, or eight if necessary.
    put(&mut body, SCOPE, &SCOPE_QUEUE.to_ne_bytes());
    body
}

/// Parses an entry of the answer. `None` if it is not about a queue of one direction.
pub fn queue(body: &[u8]) -> Option<Queue> {
    let (mut device, mut direction, mut index) = (None, None, None);
    let mut found = Queue::default();
    for (kind, value) in attributes(body.get(generic::HEAD..)?) {
        let counters = &mut found.counters;
        match kind {
            IFINDEX => device = number(value, 0),
            QUEUE_ID => index = number(value, 0),
            QUEUE_TYPE => {
                direction = match number(value, 0) {
                    Some(0) => Some(Direction::Receive),
                    Some(1) => Some(Direction::Transmit),
                    _ => return None,
                }
            }
            RX_PACKETS | TX_PACKETS => counters.packets = uint(value),
            RX_BYTES | TX_BYTES => counters.bytes = uint(value),
            RX_HW_DROPS | TX_HW_DROPS => counters.drops = uint(value),
            TX_STOP => counters.stops = uint(value),
            TX_WAKE => counters.wakes = uint(value),
            _ => {}
        }
    }
    Some(Queue {
        device: device?,
        direction: direction?,
        index: index?,
        ..found
    })
}

/// Parses a `uint` of four or eight bytes.
fn uint(value: &[u8]) -> Option<u64> {
    match value.len() {
        4 => number(value, 0).map(u64::from),
        8 => super::long(value, 0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::made, *};

    fn small(kind: u16, value: u32) -> Vec<u8> {
        made::attribute(kind, &value.to_ne_bytes())
    }

    fn receive() -> Vec<u8> {
        [
            vec![12, 1, 0, 0],
            small(IFINDEX, 4),
            small(QUEUE_TYPE, 0),
            small(QUEUE_ID, 3),
            small(RX_PACKETS, 18_023),
            made::attribute(RX_BYTES, &9_000_000_000_u64.to_ne_bytes()),
            small(RX_HW_DROPS, 7),
            // `rx-alloc-fail`, which is not used.
            small(12, 2),
            // Attribute of a future kernel.
            small(200, 1),
        ]
        .concat()
    }

    #[test]
    fn queues_of_both_directions_are_parsed() {
        assert_eq!(
            queue(&receive()),
            Some(Queue {
                device: 4,
                direction: Direction::Receive,
                index: 3,
                counters: Counters {
                    packets: Some(18_023),
                    bytes: Some(9_000_000_000),
                    drops: Some(7),
                    ..Counters::default()
                },
            })
        );
        let transmit = [
            vec![12, 1, 0, 0],
            small(IFINDEX, 4),
            small(QUEUE_TYPE, 1),
            small(QUEUE_ID, 0),
            small(TX_PACKETS, 5),
            small(TX_STOP, 2),
            small(TX_WAKE, 1),
        ]
        .concat();
        let found = queue(&transmit).unwrap();
        assert_eq!(found.direction, Direction::Transmit);
        assert_eq!((found.counters.stops, found.counters.wakes), (Some(2), Some(1)));
        assert_eq!((found.counters.packets, found.counters.bytes), (Some(5), None));
    }

    #[test]
    fn other_entries_are_ignored() {
        let kind = |kind| {
            let all = [vec![12, 1, 0, 0], small(IFINDEX, 4), small(QUEUE_ID, 0), kind];
            queue(&all.concat())
        };
        assert!(kind(small(QUEUE_TYPE, 1)).is_some());
        assert_eq!(kind(small(QUEUE_TYPE, 2)), None);
        assert_eq!(kind(Vec::new()), None, "counters of the whole interface");
        assert_eq!(queue(&[12, 1]), None);
        let odd = [receive(), made::attribute(RX_PACKETS, &[1, 2])].concat();
        assert_eq!(
            queue(&odd).unwrap().counters.packets,
            None,
            "a number of two bytes"
        );
    }

    #[test]
    fn request_has_interface_and_scope() {
        let expected = [vec![12, 1, 0, 0], small(IFINDEX, 4), small(SCOPE, 1)].concat();
        assert_eq!(queues_request(4), expected);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(noise in proptest::collection::vec(any::<u8>(), 0..40), at in any::<prop::sample::Index>(), cut in 0..30_usize) {
            let mut bytes = receive();
            let at = at.index(bytes.len());
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, noise);
            let _ = queue(&bytes);
            let _ = generic::family(&bytes);
        }
    }
}
