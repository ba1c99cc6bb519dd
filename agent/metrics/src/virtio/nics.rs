//! Metric families of network interfaces and their queues.

use virtfleet_agent_core::virtio::{Counters, Direction, Machine, Nic, NicKind};
use virtfleet_wire::exposition::{MetricType, Page};

use super::MAX_EXPORTED;

/// Maximum number of queues per direction of one interface with their own series.
const MAX_QUEUES_PER_NIC: u32 = 64;
/// Maximum number of such queues of all interfaces; the series of all counters stay below the limit
/// of a collector.
const MAX_QUEUES: usize = 1024;

pub(super) fn write(page: &mut Page, machine: &Machine) {
    let nics = &machine.nics[..machine.nics.len().min(MAX_EXPORTED)];
    let mut family = page.family(
        "virtfleet_virtio_nic_info",
        "A network interface with a device: its kind, driver and virtio device, always 1.",
        MetricType::Gauge,
    );
    for nic in nics {
        let labels = [
            ("nic", nic.name.as_str()),
            ("kind", kind(nic.kind)),
            ("driver", &nic.driver),
            ("device", nic.device.as_deref().unwrap_or_default()),
        ];
        family.sample(&labels, 1.0);
    }
    write_sizes(page, nics);
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&Nic) -> Option<u32>| {
        let mut family = page.family(name, help, MetricType::Gauge);
        for nic in nics {
            if let Some(value) = value(nic) {
                family.sample(&[("nic", &nic.name)], f64::from(value));
            }
        }
    };
    gauge(
        "virtfleet_virtio_nic_mtu_bytes",
        "The MTU of a network interface.",
        &|nic| Some(nic.mtu),
    );
    gauge(
        "virtfleet_virtio_nic_dhcp_mtu_bytes",
        "The MTU that DHCP provided for a network interface.",
        &|nic| nic.dhcp_mtu,
    );
}

fn write_sizes(page: &mut Page, nics: &[Nic]) {
    let mut family = page.family(
        "virtfleet_virtio_nic_channels",
        "Queue pairs (receive and transmit) of a network interface: current and maximum.",
        MetricType::Gauge,
    );
    for nic in nics {
        let Some(channels) = nic.channels else { continue };
        for (state, count) in [("current", channels.current), ("possible", channels.possible)] {
            family.sample(&[("nic", &nic.name), ("state", state)], f64::from(count));
        }
    }
    let mut family = page.family(
        "virtfleet_virtio_nic_ring_size",
        "Descriptors in each ring of a network interface: current and maximum.",
        MetricType::Gauge,
    );
    for nic in nics {
        let Some(rings) = nic.rings else { continue };
        for (direction, state, size) in [
            (Direction::Receive, "current", rings.rx),
            (Direction::Receive, "possible", rings.rx_possible),
            (Direction::Transmit, "current", rings.tx),
            (Direction::Transmit, "possible", rings.tx_possible),
        ] {
            let labels = [
                ("nic", nic.name.as_str()),
                ("direction", word(direction)),
                ("state", state),
            ];
            family.sample(&labels, f64::from(size));
        }
    }
}

/// A queue with its own series.
struct Row<'a> {
    nic: &'a str,
    queue: String,
    direction: &'static str,
    counters: Counters,
}

type Field = fn(&Counters) -> Option<u64>;

static COUNTERS: [(&str, &str, Field); 7] = [
    (
        "virtfleet_virtio_nic_queue_packets_total",
        "Packets through a queue of a network interface.",
        |counters| counters.packets,
    ),
    (
        "virtfleet_virtio_nic_queue_bytes_total",
        "Bytes through a queue of a network interface.",
        |counters| counters.bytes,
    ),
    (
        "virtfleet_virtio_nic_queue_drops_total",
        "Packets dropped by the driver or the device at a queue of a network interface.",
        |counters| counters.drops,
    ),
    (
        "virtfleet_virtio_nic_queue_kicks_total",
        "Number of notifications (kicks) to the hypervisor about a queue of a network interface.",
        |counters| counters.kicks,
    ),
    (
        "virtfleet_virtio_nic_queue_timeouts_total",
        "Number of transmit timeouts of a queue of a network interface.",
        |counters| counters.timeouts,
    ),
    (
        "virtfleet_virtio_nic_queue_stops_total",
        "Number of times that a transmit queue of a network interface was stopped because its ring was full.",
        |counters| counters.stops,
    ),
    (
        "virtfleet_virtio_nic_queue_wakes_total",
        "Number of times that a stopped transmit queue of a network interface was woken.",
        |counters| counters.wakes,
    ),
];

/// Writes the families of queues, which are the largest: a page without sufficient room drops what
/// is written last.
pub(super) fn write_queues(page: &mut Page, machine: &Machine) {
    let nics = &machine.nics[..machine.nics.len().min(MAX_EXPORTED)];
    let mut rows: Vec<Row<'_>> = Vec::new();
    let mut left_out = Vec::new();
    for nic in nics {
        let mut beyond = 0_u32;
        for queue in &nic.queues {
            if queue.index >= MAX_QUEUES_PER_NIC || rows.len() >= MAX_QUEUES {
                beyond += 1;
                continue;
            }
            rows.push(Row {
                nic: &nic.name,
                queue: queue.index.to_string(),
                direction: word(queue.direction),
                counters: queue.counters,
            });
        }
        if beyond > 0 {
            left_out.push((nic, beyond));
        }
    }
    for (name, help, value) in &COUNTERS {
        let mut family = page.family(name, help, MetricType::Counter);
        for row in &rows {
            if let Some(value) = value(&row.counters) {
                let labels = [
                    ("nic", row.nic),
                    ("queue", row.queue.as_str()),
                    ("direction", row.direction),
                ];
                family.sample(&labels, value as f64);
            }
        }
    }
    let mut family = page.family(
        "virtfleet_virtio_nic_queues_left_out",
        "Queues of a network interface without their own series because there are too many.",
        MetricType::Gauge,
    );
    for (nic, beyond) in left_out {
        family.sample(&[("nic", &nic.name)], f64::from(beyond));
    }
}

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Receive => "receive",
        Direction::Transmit => "transmit",
    }
}

fn kind(kind: NicKind) -> &'static str {
    match kind {
        NicKind::Virtio => "virtio",
        NicKind::Function => "function",
        NicKind::Emulated => "emulated",
        NicKind::Other => "other",
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::virtio::{Channels, NicQueue, Rings};

    use super::*;

    fn nic(name: &str, queues: u32) -> Nic {
        let queue = |direction, index| NicQueue {
            direction,
            index,
            cpus: None,
            counters: Counters {
                packets: Some(u64::from(index) + 1),
                ..Counters::default()
            },
        };
        let both = [Direction::Receive, Direction::Transmit];
        Nic {
            name: name.to_owned(),
            kind: NicKind::Virtio,
            mtu: 1400,
            queues: both
                .into_iter()
                .flat_map(|direction| (0..queues).map(move |index| queue(direction, index)))
                .collect(),
            ..Nic::default()
        }
    }

    fn text(nics: Vec<Nic>) -> String {
        let mut page = Page::new();
        let machine = Machine {
            nics,
            ..Machine::default()
        };
        write(&mut page, &machine);
        write_queues(&mut page, &machine);
        page.to_text()
    }

    #[test]
    fn queues_and_sizes_of_an_interface_are_exported() {
        let mut first = nic("eth0", 2);
        first.channels = Some(Channels {
            current: 2,
            possible: 4,
        });
        first.rings = Some(Rings {
            rx: 256,
            tx: 128,
            rx_possible: 1024,
            tx_possible: 1024,
        });
        first.queues[3].counters.timeouts = Some(9);
        first.dhcp_mtu = Some(1450);
        let page = text(vec![first]);
        for line in [
            "channels{nic=\"eth0\",state=\"current\"} 2",
            "channels{nic=\"eth0\",state=\"possible\"} 4",
            "ring_size{nic=\"eth0\",direction=\"transmit\",state=\"current\"} 128",
            "ring_size{nic=\"eth0\",direction=\"receive\",state=\"possible\"} 1024",
            "mtu_bytes{nic=\"eth0\"} 1400",
            "dhcp_mtu_bytes{nic=\"eth0\"} 1450",
            "queue_packets_total{nic=\"eth0\",queue=\"1\",direction=\"receive\"} 2",
            "queue_timeouts_total{nic=\"eth0\",queue=\"1\",direction=\"transmit\"} 9",
        ] {
            let line = format!("\nvirtfleet_virtio_nic_{line}\n");
            assert!(page.contains(&line), "{line} in {page}");
        }
        assert!(
            !page.contains("bytes_total") && !page.contains("left_out"),
            "{page}"
        );
    }

    #[test]
    fn series_are_bounded_and_the_rest_is_counted() {
        let page = text(vec![nic("eth0", 256)]);
        let packets = "\nvirtfleet_virtio_nic_queue_packets_total{";
        assert_eq!(page.matches(packets).count(), 2 * 64);
        assert!(page.contains("queues_left_out{nic=\"eth0\"} 384\n"), "{page}");
        let many = (0..64).map(|number| nic(&format!("eth{number}"), 256)).collect();
        let page = text(many);
        assert_eq!(page.matches(packets).count(), MAX_QUEUES);
        assert!(page.contains("queues_left_out{nic=\"eth63\"} 512\n"), "{page}");
        assert!(page.lines().count() < 4000);
    }
}
