//! Traffic of each queue of a guest's network interfaces, from the counters of two of its metrics
//! pages. A guest reports what it likes; the values are shown and decide nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum queues of a VM that are kept: 32 pairs.
pub const MAX_QUEUES: usize = 64;
/// Maximum bytes of an interface's name (`IFNAMSIZ`, without the end).
pub const MAX_NIC_NAME_BYTES: usize = 15;

/// Direction of a queue, as the guest sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum QueueDirection {
    /// To the guest.
    Receive,
    /// From the guest.
    Transmit,
}

/// A queue of a network interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestQueue {
    /// The interface in the guest.
    pub nic: Box<str>,
    /// Number of the queue.
    pub queue: u16,
    /// Direction.
    pub direction: QueueDirection,
}

/// Counters of a queue on one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueTotals {
    pub queue: GuestQueue,
    /// `virtfleet_virtio_nic_queue_packets_total`.
    pub packets: u64,
    /// `virtfleet_virtio_nic_queue_bytes_total`.
    pub bytes: u64,
}

/// Traffic of a queue between the last two pulls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueTraffic {
    /// The queue.
    #[serde(flatten)]
    pub queue: GuestQueue,
    /// Packets per second.
    pub packets_per_s: u64,
    /// Bytes per second.
    pub bytes_per_s: u64,
}

/// The traffic of each queue that both pages have, by interface, queue and direction. A counter
/// that went backwards (a driver that was bound again) leaves its queue out. Both slices are
/// sorted.
pub(crate) fn traffic(before: &[QueueTotals], now: &[QueueTotals], elapsed_ms: u64) -> Box<[QueueTraffic]> {
    let rate = |before: u64, now: u64| {
        let more = u128::from(now.checked_sub(before)?) * 1000;
        u64::try_from(more.checked_div(u128::from(elapsed_ms))?).ok()
    };
    let of = |now: &QueueTotals| {
        let at = before.binary_search_by(|one| one.queue.cmp(&now.queue)).ok()?;
        let before = before.get(at)?;
        Some(QueueTraffic {
            queue: now.queue.clone(),
            packets_per_s: rate(before.packets, now.packets)?,
            bytes_per_s: rate(before.bytes, now.bytes)?,
        })
    };
    now.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(queue: u16, packets: u64, bytes: u64) -> QueueTotals {
        QueueTotals {
            queue: GuestQueue {
                nic: "eth0".into(),
                queue,
                direction: QueueDirection::Receive,
            },
            packets,
            bytes,
        }
    }

    #[test]
    fn rates_are_of_queues_that_both_pages_have() {
        let before = [
            counters(0, 100, 1000),
            counters(1, 5, 5),
            counters(2, 9, u64::MAX),
        ];
        let now = [
            counters(0, 400, 1_500_001_000),
            counters(1, 4, 5),
            counters(2, 9, u64::MAX),
            counters(3, 1, 1),
        ];
        let found = traffic(&before, &now, 30_000);
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.queue.queue, one.packets_per_s, one.bytes_per_s))
            .collect();
        assert_eq!(found, [(0, 10, 50_000_000), (2, 0, 0)]);
        assert!(traffic(&before, &now, 0).is_empty(), "no time has passed");
        let text = serde_json::to_string(&traffic(&before, &now[..1], 1000)[0]).unwrap();
        assert!(
            text.starts_with(r#"{"nic":"eth0","queue":0,"direction":"receive","packetsPerS":300"#),
            "{text}"
        );
    }
}
