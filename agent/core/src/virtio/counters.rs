//! Counters of queues: maps the drivers' names for them to uniform ones.
//!
//! | source | names |
//! |---|---|
//! | `virtio_net` of Linux 5.10 to 6.6; igb, ixgbe, ice, hv_netvsc | `rx_queue_0_packets`, `tx_queue_0_tx_timeouts` |
//! | `virtio_net` of 6.12 and later; mlx5 | `rx0_drops`, `tx0_kicks`, `tx0_tx_timeouts`, `tx0_stopped` |
//! | counters of a virtio device (`VIRTIO_NET_F_DEVICE_STATS`) | `rx0_hw_packets`, `tx0_hw_drops` |
//! | i40e, iavf | `rx-0.packets`, formerly `rx-0.rx_packets` |
//! | ena | `queue_0_tx_cnt`, `queue_0_rx_bytes`, `queue_0_tx_queue_stop` |
//!
//! A newer `virtio_net` reports packets and bytes of its queues only by the netlink family `netdev`
//! (kernel: `drivers/net/virtio_net.c`, `virtnet_rq_stats_desc_qstat`). [`merge`] combines both
//! sources.

use std::collections::{BTreeMap, btree_map::Entry};

use super::{Counters, Direction};

/// Maximum number of queues per direction: more than any interface has.
pub const MAX_QUEUES: u32 = 4096;

/// Counters by direction and number of the queue.
pub type ByQueue = BTreeMap<(Direction, u32), Counters>;

/// Extracts queue counters from a driver's statistics (`ETHTOOL_GSTATS`).
///
/// Names of no queue, or of a queue above [`MAX_QUEUES`], are ignored; the first of equal names is
/// used. Packets and bytes are the driver's, or the device's if the driver has none; drops are the
/// sum of both.
pub fn of_statistics(all: &[(String, u64)]) -> ByQueue {
    let mut found: BTreeMap<(Direction, u32), Both> = BTreeMap::new();
    for (name, value) in all {
        let Some(Name {
            direction,
            queue,
            device,
            field,
        }) = name_of(name)
        else {
            continue;
        };
        let both = found.entry((direction, queue)).or_default();
        let counters = if device {
            &mut both.device
        } else {
            &mut both.driver
        };
        field.of(counters).get_or_insert(*value);
    }
    found.into_iter().map(|(key, both)| (key, both.one())).collect()
}

/// Merges counters of the netlink family `netdev` into those of the driver.
///
/// The family takes precedence for packets, bytes, stops and wakes: its counters mean the same for
/// all drivers. Kicks and timeouts only the driver has. Drops are added: the driver counts its own,
/// the family (`rx-hw-drops`, `tx-hw-drops`) those of the device.
pub fn merge(all: &mut ByQueue, family: impl IntoIterator<Item = ((Direction, u32), Counters)>) {
    for ((direction, queue), counters) in family {
        if queue >= MAX_QUEUES {
            continue;
        }
        match all.entry((direction, queue)) {
            Entry::Vacant(entry) => drop(entry.insert(counters)),
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                *known = Counters {
                    packets: counters.packets.or(known.packets),
                    bytes: counters.bytes.or(known.bytes),
                    stops: counters.stops.or(known.stops),
                    wakes: counters.wakes.or(known.wakes),
                    kicks: known.kicks.or(counters.kicks),
                    timeouts: known.timeouts.or(counters.timeouts),
                    drops: sum(known.drops, counters.drops),
                };
            }
        }
    }
}

/// Counters of driver and device.
#[derive(Default)]
struct Both {
    driver: Counters,
    device: Counters,
}

impl Both {
    fn one(self) -> Counters {
        let Self { driver, device } = self;
        Counters {
            packets: driver.packets.or(device.packets),
            bytes: driver.bytes.or(device.bytes),
            drops: sum(driver.drops, device.drops),
            ..driver
        }
    }
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}

/// Parsed name of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name {
    direction: Direction,
    queue: u32,
    /// Whether the device counts it, not the driver.
    device: bool,
    field: Field,
}

/// Counted quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Packets,
    Bytes,
    Drops,
    Kicks,
    Timeouts,
    Stops,
    Wakes,
}

impl Field {
    fn of(self, counters: &mut Counters) -> &mut Option<u64> {
        match self {
            Self::Packets => &mut counters.packets,
            Self::Bytes => &mut counters.bytes,
            Self::Drops => &mut counters.drops,
            Self::Kicks => &mut counters.kicks,
            Self::Timeouts => &mut counters.timeouts,
            Self::Stops => &mut counters.stops,
            Self::Wakes => &mut counters.wakes,
        }
    }

    fn named(direction: Direction, word: &str) -> Option<Self> {
        let sends = direction == Direction::Transmit;
        Some(match word {
            "packets" | "cnt" => Self::Packets,
            "bytes" => Self::Bytes,
            "drops" | "dropped" => Self::Drops,
            "kicks" => Self::Kicks,
            "tx_timeouts" | "timeouts" if sends => Self::Timeouts,
            "stopped" | "queue_stop" if sends => Self::Stops,
            "wake" | "queue_wakeup" if sends => Self::Wakes,
            _ => return None,
        })
    }
}

fn name_of(name: &str) -> Option<Name> {
    // ena: `queue_0_tx_cnt`.
    if let Some(rest) = name.strip_prefix("queue_") {
        let (queue, rest) = numbered(rest)?;
        let (direction, word) = directed(rest.strip_prefix('_')?)?;
        return plain(direction, queue, word.strip_prefix('_')?);
    }
    let (direction, rest) = directed(name)?;
    // `rx_queue_0_packets`.
    if let Some(rest) = rest.strip_prefix("_queue_") {
        let (queue, rest) = numbered(rest)?;
        return plain(direction, queue, rest.strip_prefix('_')?);
    }
    // i40e: `rx-0.packets`, `rx-0.rx_packets`.
    if let Some(rest) = rest.strip_prefix('-') {
        let (queue, rest) = numbered(rest)?;
        let word = rest.strip_prefix('.')?;
        let bare = directed(word).and_then(|(again, bare)| (again == direction).then_some(bare));
        return plain(
            direction,
            queue,
            bare.and_then(|bare| bare.strip_prefix('_')).unwrap_or(word),
        );
    }
    // `rx0_packets`, `rx0_hw_packets`.
    let (queue, rest) = numbered(rest)?;
    let word = rest.strip_prefix('_')?;
    let own = word.strip_prefix("hw_");
    let found = plain(direction, queue, own.unwrap_or(word))?;
    let countable = matches!(found.field, Field::Packets | Field::Bytes | Field::Drops);
    let device = own.is_some();
    (!device || countable).then_some(Name { device, ..found })
}

fn plain(direction: Direction, queue: u32, word: &str) -> Option<Name> {
    let field = Field::named(direction, word)?;
    Some(Name {
        direction,
        queue,
        device: false,
        field,
    })
}

/// Splits off the direction.
fn directed(text: &str) -> Option<(Direction, &str)> {
    match text.split_at_checked(2)? {
        ("rx", rest) => Some((Direction::Receive, rest)),
        ("tx", rest) => Some((Direction::Transmit, rest)),
        _ => None,
    }
}

/// Splits off a queue number in the kernel's notation.
fn numbered(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let canonical = digits.len() == 1 || !digits.starts_with('0');
    let queue = digits
        .parse()
        .ok()
        .filter(|queue| canonical && *queue < MAX_QUEUES)?;
    Some((queue, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(all: &[(&str, u64)]) -> ByQueue {
        let all: Vec<_> = all
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect();
        of_statistics(&all)
    }

    const RX: Direction = Direction::Receive;
    const TX: Direction = Direction::Transmit;

    #[test]
    fn counters_of_virtio_on_older_kernels() {
        let found = told(&[
            ("rx_queue_0_packets", 11),
            ("rx_queue_0_bytes", 12),
            ("rx_queue_0_drops", 13),
            ("rx_queue_0_xdp_packets", 1),
            ("rx_queue_0_xdp_drops", 2),
            ("rx_queue_0_kicks", 14),
            ("rx_queue_11_packets", 15),
            ("tx_queue_0_packets", 21),
            ("tx_queue_0_bytes", 22),
            ("tx_queue_0_xdp_tx", 3),
            ("tx_queue_0_xdp_tx_drops", 4),
            ("tx_queue_0_kicks", 23),
            ("tx_queue_0_tx_timeouts", 24),
        ]);
        assert_eq!(
            found.keys().copied().collect::<Vec<_>>(),
            [(RX, 0), (RX, 11), (TX, 0)]
        );
        let first = found[&(RX, 0)];
        assert_eq!(
            (first.packets, first.bytes, first.drops, first.kicks),
            (Some(11), Some(12), Some(13), Some(14))
        );
        assert_eq!(found[&(TX, 0)].timeouts, Some(24));
        assert_eq!(found[&(TX, 0)].drops, None, "drops of XDP are not counted");
    }

    #[test]
    fn counters_of_virtio_on_newer_kernels() {
        // As reported by 6.18, with the counters of a device.
        let found = told(&[
            ("rx_drops", 900),
            ("rx_kicks", 901),
            ("tx_tx_timeouts", 902),
            ("rx_hw_packets", 903),
            ("cq_hw_command_num", 904),
            ("rx0_drops", 1),
            ("rx0_kicks", 2),
            ("rx0_hw_packets", 3),
            ("rx0_hw_bytes", 4),
            ("rx0_hw_notifications", 5),
            ("rx0_hw_drops", 6),
            ("tx0_kicks", 7),
            ("tx0_tx_timeouts", 8),
            ("tx1_timeouts", 9),
        ]);
        assert_eq!(found.len(), 3, "sums over all queues are ignored: {found:?}");
        let first = found[&(RX, 0)];
        assert_eq!(
            (first.packets, first.bytes, first.kicks),
            (Some(3), Some(4), Some(2))
        );
        assert_eq!(first.drops, Some(7), "the driver's and the device's");
        assert_eq!(found[&(TX, 0)].timeouts, Some(8));
        assert_eq!(found[&(TX, 1)].timeouts, Some(9));
        // If both report it, the driver's value is used.
        let found = told(&[("rx0_hw_packets", 30), ("rx0_packets", 31)]);
        assert_eq!(found[&(RX, 0)].packets, Some(31));
    }

    #[test]
    fn counters_of_hardware_drivers() {
        let found = told(&[
            ("rx2_packets", 1),
            ("tx2_stopped", 2),
            ("tx2_wake", 3),
            ("tx2_dropped", 4),
            ("rx-3.packets", 5),
            ("tx-3.tx_bytes", 6),
            ("queue_4_tx_cnt", 7),
            ("queue_4_rx_bytes", 8),
            ("queue_4_tx_queue_stop", 9),
            ("queue_4_tx_queue_wakeup", 10),
        ]);
        assert_eq!(found[&(RX, 2)].packets, Some(1));
        let two = found[&(TX, 2)];
        assert_eq!((two.stops, two.wakes, two.drops), (Some(2), Some(3), Some(4)));
        assert_eq!(found[&(RX, 3)].packets, Some(5));
        assert_eq!(found[&(TX, 3)].bytes, Some(6));
        assert_eq!(
            (found[&(TX, 4)].packets, found[&(RX, 4)].bytes),
            (Some(7), Some(8))
        );
        assert_eq!(
            (found[&(TX, 4)].stops, found[&(TX, 4)].wakes),
            (Some(9), Some(10))
        );
    }

    #[test]
    fn unknown_names_are_ignored() {
        let found = told(&[
            ("rx4096_packets", 1),
            ("rx99999999999999999999_packets", 1),
            ("rx00_packets", 1),
            ("rx_packets", 1),
            ("rx0packets", 1),
            ("rx0_", 1),
            ("rx", 1),
            ("r\u{e9}0_packets", 1),
            ("rx0_hw_kicks", 1),
            ("rx0_tx_timeouts", 1),
            ("rx-0.tx_packets", 1),
            ("queue_0_cnt", 1),
            ("", 1),
        ]);
        assert!(found.is_empty(), "{found:?}");
        let found = told(&[("rx4095_packets", 5), ("rx4095_packets", 6)]);
        assert_eq!(found[&(RX, 4095)].packets, Some(5), "the first of two");
    }

    #[test]
    fn driver_and_netdev_counters_are_merged() {
        let mut all = told(&[
            ("rx0_drops", 1),
            ("rx0_kicks", 2),
            ("rx0_hw_packets", 3),
            ("tx0_tx_timeouts", 4),
        ]);
        let family = |packets, drops, stops| Counters {
            packets,
            drops,
            stops,
            ..Counters::default()
        };
        merge(
            &mut all,
            [
                ((RX, 0), family(Some(10), Some(5), None)),
                ((TX, 0), family(None, None, Some(6))),
                ((TX, 7), family(Some(11), None, None)),
                ((TX, MAX_QUEUES), family(Some(12), None, None)),
            ],
        );
        let first = all[&(RX, 0)];
        assert_eq!(
            (first.packets, first.drops, first.kicks),
            (Some(10), Some(6), Some(2))
        );
        assert_eq!((all[&(TX, 0)].timeouts, all[&(TX, 0)].stops), (Some(4), Some(6)));
        assert_eq!((all.len(), all[&(TX, 7)].packets), (3, Some(11)));
    }

    proptest! {
        #[test]
        fn no_names_panic_and_queues_are_bounded(names in proptest::collection::vec(
            ("(queue_|rx|tx|rx_queue_|tx-)?[0-9]{0,12}[_.]?(hw_|rx_|tx_)?(packets|bytes|cnt|drops|kicks|timeouts|é)?", any::<u64>()), 0..60,
        )) {
            let found = of_statistics(&names);
            prop_assert!(found.len() <= names.len());
            prop_assert!(found.keys().all(|(_, queue)| *queue < MAX_QUEUES));
            let mut twice = found.clone();
            merge(&mut twice, found.iter().map(|(key, counters)| (*key, *counters)));
            prop_assert_eq!(twice.len(), found.len());
        }

        #[test]
        fn every_name_format_maps_to_its_counter(queue in 0..MAX_QUEUES, value in any::<u64>(), form in 0..4_usize) {
            let name = [
                format!("tx_queue_{queue}_bytes"),
                format!("tx{queue}_bytes"),
                format!("tx-{queue}.bytes"),
                format!("queue_{queue}_tx_bytes"),
            ];
            let found = of_statistics(&[(name[form].clone(), value)]);
            prop_assert_eq!(found.get(&(TX, queue)).and_then(|counters| counters.bytes), Some(value));
        }
    }
}
