//! Metric families of virtio devices and of the total number of interrupts.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use virtfleet_agent_core::virtio::{
    Bus, Device, Kind, Machine, Role, Sharing, Vector,
    interrupts::{Serves, handler},
};
use virtfleet_wire::exposition::{MetricType, Page};

use super::MAX_EXPORTED;

/// Relevant features of all devices: `VIRTIO_F_*`.
const COMMON_FEATURES: &[(u32, &str)] = &[(32, "VERSION_1"), (33, "ACCESS_PLATFORM")];
/// Relevant features of devices with high-traffic queues: `VIRTIO_RING_F_*`,
/// `VIRTIO_F_RING_PACKED`.
const QUEUE_FEATURES: &[(u32, &str)] = &[(28, "INDIRECT_DESC"), (29, "EVENT_IDX"), (34, "RING_PACKED")];
/// Relevant features of network devices, `VIRTIO_NET_F_*`.
const NETWORK_FEATURES: &[(u32, &str)] = &[
    (0, "CSUM"),
    (1, "GUEST_CSUM"),
    (7, "GUEST_TSO4"),
    (8, "GUEST_TSO6"),
    (11, "HOST_TSO4"),
    (12, "HOST_TSO6"),
    (15, "MRG_RXBUF"),
    (17, "CTRL_VQ"),
    (22, "MQ"),
];
/// Relevant features of block devices, `VIRTIO_BLK_F_*`.
const BLOCK_FEATURES: &[(u32, &str)] = &[
    (9, "FLUSH"),
    (11, "CONFIG_WCE"),
    (12, "MQ"),
    (13, "DISCARD"),
    (14, "WRITE_ZEROES"),
];

/// The exported features of a device type.
fn features(kind: Kind) -> impl Iterator<Item = (u32, &'static str)> {
    let (own, queues): (&[_], &[_]) = match kind {
        Kind::NET => (NETWORK_FEATURES, QUEUE_FEATURES),
        Kind::BLOCK => (BLOCK_FEATURES, QUEUE_FEATURES),
        Kind::SCSI | Kind::VSOCK | Kind::FS => (&[], QUEUE_FEATURES),
        _ => (&[], &[]),
    };
    own.iter().chain(queues).chain(COMMON_FEATURES).copied()
}

/// Writes the families. Without `all_interrupts` those that are made of interrupts are left out.
pub(super) fn write(page: &mut Page, machine: &Machine, all_interrupts: bool) {
    let devices = &machine.devices[..machine.devices.len().min(MAX_EXPORTED)];
    let mut family = page.family(
        "virtfleet_virtio_device_info",
        "A virtio device: its type, driver and place, always 1.",
        MetricType::Gauge,
    );
    for device in devices {
        let kind = device.kind.to_string();
        let labels = [
            ("device", device.name.as_str()),
            ("type", &kind),
            ("driver", device.driver.as_deref().unwrap_or_default()),
            ("bus", bus(device.bus)),
            ("address", &device.address),
        ];
        family.sample(&labels, 1.0);
    }
    gauge(
        page,
        devices,
        "virtfleet_virtio_device_needs_reset",
        "Whether a virtio device had an error that requires a reset.",
        &|device| device.status.map(|_| flag(device.needs_reset())),
    );
    gauge(
        page,
        devices,
        "virtfleet_virtio_device_failed",
        "Whether the guest has given up on a virtio device (status bit FAILED).",
        &|device| device.status.map(|_| flag(device.failed())),
    );
    write_features(page, devices);
    if all_interrupts {
        write_interrupts(page, devices);
    }
    write_vectors(page, machine);
}

fn write_features(page: &mut Page, devices: &[Device]) {
    let mut family = page.family(
        "virtfleet_virtio_feature_negotiated",
        "Whether a virtio device and its driver have negotiated a relevant feature.",
        MetricType::Gauge,
    );
    for device in devices {
        // Without a driver nothing is negotiated.
        if device.driver.is_none() {
            continue;
        }
        for (bit, name) in features(device.kind) {
            let labels = [("device", device.name.as_str()), ("feature", name)];
            family.sample(&labels, flag(device.negotiated.has(bit)));
        }
    }
}

/// Writes a family with a value of each device that has one.
fn gauge(
    page: &mut Page,
    devices: &[Device],
    name: &str,
    help: &str,
    value: &dyn Fn(&Device) -> Option<f64>,
) {
    let mut family = page.family(name, help, MetricType::Gauge);
    for device in devices {
        if let Some(value) = value(device) {
            family.sample(&[("device", &device.name)], value);
        }
    }
}

fn write_interrupts(page: &mut Page, devices: &[Device]) {
    gauge(
        page,
        devices,
        "virtfleet_virtio_vectors",
        "Number of interrupts of a virtio device.",
        &|device| Some(device.vectors.len() as f64),
    );
    gauge(
        page,
        devices,
        "virtfleet_virtio_vectors_shared",
        "Whether the queues of a virtio device share an interrupt because it has too few or no vectors of its own.",
        &|device| match device.sharing {
            Sharing::Own => Some(0.0),
            Sharing::Shared | Sharing::Intx => Some(1.0),
            Sharing::Unknown => None,
        },
    );
    gauge(
        page,
        devices,
        "virtfleet_virtio_interrupt_cpus",
        "Number of CPUs that receive the interrupts of a virtio device's queues.",
        &|device| {
            Some(cpus(device))
                .filter(|cpus| *cpus > 0)
                .map(|cpus| cpus as f64)
        },
    );
    let mut family = page.family(
        "virtfleet_virtio_queues",
        "Queues of a virtio device by role.",
        MetricType::Gauge,
    );
    for device in devices {
        let mut roles: BTreeMap<&Role, u32> = BTreeMap::new();
        for queue in &device.queues {
            *roles.entry(&queue.role).or_default() += 1;
        }
        for (role, count) in roles {
            let role = word(role.clone());
            family.sample(&[("device", &device.name), ("role", &role)], f64::from(count));
        }
    }
    let mut family = page.family(
        "virtfleet_virtio_interrupts_total",
        "Interrupts of a virtio device by purpose: a role of its queues, all its queues, or its configuration.",
        MetricType::Counter,
    );
    for device in devices {
        let mut roles: BTreeMap<Cow<'_, str>, u64> = BTreeMap::new();
        for vector in &device.vectors {
            *roles.entry(purpose(vector)).or_default() += vector.count();
        }
        for (role, count) in &roles {
            family.sample(&[("device", &device.name), ("role", role)], *count as f64);
        }
    }
}

fn write_vectors(page: &mut Page, machine: &Machine) {
    let mut family = page.family(
        "virtfleet_virtio_msi_vectors",
        "Message-signaled interrupts of all PCI devices: used, and an estimate of the maximum.",
        MetricType::Gauge,
    );
    family.sample(&[("state", "used")], f64::from(machine.vectors.used));
    if let Some(limit) = machine.vectors.limit {
        family.sample(&[("state", "limit")], f64::from(limit));
    }
}

/// Number of CPUs that receive the interrupts of its queues.
fn cpus(device: &Device) -> usize {
    let queues = device
        .vectors
        .iter()
        .filter(|vector| handler(&vector.name).is_none_or(|(_, serves)| serves != Serves::Configuration));
    let all: BTreeSet<u32> = queues
        .flat_map(|vector| {
            if vector.effective.is_empty() {
                &vector.affinity
            } else {
                &vector.effective
            }
        })
        .copied()
        .collect();
    all.len()
}

/// Purpose of an interrupt.
fn purpose(vector: &Vector) -> Cow<'static, str> {
    let word = match handler(&vector.name) {
        Some((_, Serves::Configuration)) => "config",
        Some((_, Serves::Queues | Serves::Everything)) => "all",
        Some((_, Serves::Queue(role, _))) => return word(role),
        None => return word(Role::Unknown),
    };
    Cow::Borrowed(word)
}

fn word(role: Role) -> Cow<'static, str> {
    Cow::Borrowed(match role {
        Role::Input => "input",
        Role::Output => "output",
        Role::Request => "request",
        Role::Control => "control",
        Role::Event => "event",
        Role::Other(name) => return Cow::Owned(name),
        Role::Unknown => "unknown",
    })
}

fn bus(bus: Bus) -> &'static str {
    match bus {
        Bus::Pci => "pci",
        Bus::Mmio => "mmio",
        Bus::Ccw => "ccw",
        Bus::Other => "other",
    }
}

fn flag(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::virtio::{Features, Queue, Vectors};

    use super::*;

    fn vector(irq: u32, name: &str, effective: &[u32], count: u64) -> Vector {
        Vector {
            irq,
            name: name.to_owned(),
            affinity: vec![0, 1, 2, 3],
            effective: effective.to_vec(),
            landed: vec![(0, count), (3, 1)],
        }
    }

    fn text(machine: &Machine) -> String {
        let mut page = Page::new();
        write(&mut page, machine, true);
        page.to_text()
    }

    #[test]
    fn a_network_device_with_two_queues() {
        let mut device = Device {
            name: "virtio2".to_owned(),
            kind: Kind(1),
            driver: Some("virtio_net".to_owned()),
            bus: Bus::Pci,
            address: "0000:00:03.0".to_owned(),
            status: Some(15 + 64),
            negotiated: Features(1 << 29 | 1 << 22),
            sharing: Sharing::Own,
            vectors: vec![
                vector(24, "virtio2-config", &[3], 0),
                vector(25, "virtio2-input.0", &[0], 100),
                vector(26, "virtio2-output.0", &[0], 50),
                vector(27, "virtio2-input.1", &[], 7),
            ],
            ..Device::default()
        };
        for (role, index) in [(Role::Input, 0), (Role::Input, 1), (Role::Output, 0)] {
            device.queues.push(Queue {
                role,
                index,
                irq: None,
            });
        }
        let mut machine = Machine {
            devices: vec![device],
            vectors: Vectors {
                used: 4,
                limit: None,
                ..Vectors::default()
            },
            ..Machine::default()
        };
        let page = text(&machine);
        for line in [
            "device_needs_reset{device=\"virtio2\"} 1",
            "device_failed{device=\"virtio2\"} 0",
            "feature_negotiated{device=\"virtio2\",feature=\"MQ\"} 1",
            "feature_negotiated{device=\"virtio2\",feature=\"CSUM\"} 0",
            "feature_negotiated{device=\"virtio2\",feature=\"EVENT_IDX\"} 1",
            "queues{device=\"virtio2\",role=\"input\"} 2",
            "queues{device=\"virtio2\",role=\"output\"} 1",
            "vectors{device=\"virtio2\"} 4",
            "vectors_shared{device=\"virtio2\"} 0",
            "interrupts_total{device=\"virtio2\",role=\"config\"} 1",
            "interrupts_total{device=\"virtio2\",role=\"input\"} 109",
            // CPU 0 for two queues; for the third only the permitted CPUs are known.
            "interrupt_cpus{device=\"virtio2\"} 4",
            "msi_vectors{state=\"used\"} 4",
        ] {
            let line = format!("\nvirtfleet_virtio_{line}\n");
            assert!(page.contains(&line), "{line} in {page}");
        }
        assert!(!page.contains("FLUSH") && !page.contains("limit"), "{page}");
        machine.devices[0] = Device {
            name: "virtio2".to_owned(),
            kind: Kind(2),
            ..Device::default()
        };
        let page = text(&machine);
        for family in [
            "needs_reset",
            "feature_negotiated",
            "vectors_shared",
            "interrupt_cpus",
        ] {
            assert!(!page.contains(family), "{family} must be absent: {page}");
        }
    }

    #[test]
    fn the_number_of_devices_is_bounded() {
        let machine = Machine {
            devices: (0..1000)
                .map(|number| Device {
                    name: format!("virtio{number}"),
                    ..Device::default()
                })
                .collect(),
            ..Machine::default()
        };
        let page = text(&machine);
        assert!(page.contains("virtio255\"") && !page.contains("virtio256\""));
    }
}
