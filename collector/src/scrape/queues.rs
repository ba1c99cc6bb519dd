//! Reads the counters of the queues of network interfaces from a metrics page.

use std::collections::BTreeMap;

use virtfleet_collector_core::queue_traffic::{
    GuestQueue, MAX_NIC_NAME_BYTES, MAX_QUEUES, QueueDirection, QueueTotals,
};
use virtfleet_wire::exposition::Sample;

const PACKETS: &str = "virtfleet_virtio_nic_queue_packets_total";
const BYTES: &str = "virtfleet_virtio_nic_queue_bytes_total";

/// Counters of the page being read: packets and bytes.
#[derive(Debug, Default)]
pub(super) struct QueueReader(BTreeMap<GuestQueue, [Option<u64>; 2]>);

impl QueueReader {
    /// Reads a sample of any family.
    pub(super) fn read(&mut self, sample: &Sample<'_>) {
        let counter = match sample.name {
            PACKETS => 0,
            BYTES => 1,
            _ => return,
        };
        let Some(queue) = queue(sample) else { return };
        if self.0.len() >= MAX_QUEUES && !self.0.contains_key(&queue) {
            return;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates"
        )]
        let value = sample.value as u64;
        self.0.entry(queue).or_default()[counter] = Some(value);
    }

    /// The queues of which the page has both counters, sorted.
    pub(super) fn counters(self) -> Box<[QueueTotals]> {
        let both = self.0.into_iter().filter_map(|(queue, counters)| {
            let [Some(packets), Some(bytes)] = counters else {
                return None;
            };
            Some(QueueTotals {
                queue,
                packets,
                bytes,
            })
        });
        both.collect()
    }
}

fn queue(sample: &Sample<'_>) -> Option<GuestQueue> {
    let (mut nic, mut number, mut direction) = (None, None, None);
    for (name, value) in sample.labels.clone().filter_map(Result::ok) {
        match name {
            "nic" if value.len() <= MAX_NIC_NAME_BYTES => nic = Some(value.into()),
            "queue" => number = value.parse().ok(),
            "direction" => {
                direction = match &*value {
                    "receive" => Some(QueueDirection::Receive),
                    "transmit" => Some(QueueDirection::Transmit),
                    _ => None,
                };
            }
            _ => {}
        }
    }
    Some(GuestQueue {
        nic: nic?,
        queue: number?,
        direction: direction?,
    })
}

#[cfg(test)]
mod tests {
    use virtfleet_wire::exposition::{Line, parse_line};

    use super::*;

    fn read(page: &str) -> Box<[QueueTotals]> {
        let mut reader = QueueReader::default();
        for line in page.lines() {
            if let Line::Sample(sample) = parse_line(line).unwrap() {
                reader.read(&sample);
            }
        }
        reader.counters()
    }

    #[test]
    fn queues_have_both_counters() {
        let labels = r#"{nic="eth0",queue="1",direction="transmit"}"#;
        let page = format!(
            "{PACKETS}{labels} 7\n{BYTES}{labels} 900\n{PACKETS}{{nic=\"eth0\",queue=\"0\",direction=\"receive\"}} 1\n\
             {BYTES}{{nic=\"eth0\",queue=\"x\",direction=\"receive\"}} 1\n{BYTES}{{nic=\"a-name-that-is-too-long\",queue=\"0\",direction=\"receive\"}} 1"
        );
        let found = read(&page);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].packets, found[0].bytes, found[0].queue.queue),
            (7, 900, 1)
        );
    }

    #[test]
    fn a_hostile_page_is_kept_in_part_and_its_values_saturate() {
        let line = |family: &str, queue: usize, value: &str| {
            format!("{family}{{nic=\"eth0\",queue=\"{queue}\",direction=\"receive\"}} {value}\n")
        };
        let page: String = (0..1000)
            .map(|queue| line(PACKETS, queue, "-1") + &line(BYTES, queue, "1e300"))
            .collect();
        let found = read(&page);
        assert_eq!(found.len(), MAX_QUEUES);
        assert!(found.iter().all(|one| (one.packets, one.bytes) == (0, u64::MAX)));
    }
}
