//! A healthy KubeVirt guest with four vCPUs, and helpers to list its findings.

use virtfleet_wire::{finding::Finding, settings::NicSettings};

use super::super::findings;
use crate::{
    nic::state::{NicState, NicStatus, QueueStatus},
    virtio::{
        Bus, Channels, Counters, Cpus, Device, Direction, Disk, DiskKind, DiskQueue, Features, Kind, Machine,
        Nic, NicKind, NicQueue, Queue, Role, Sharing, Vector, Vectors, WriteCache,
        features::{net, transport},
    },
};

pub(super) const CPUS: u32 = 4;

fn device(name: &str, kind: Kind, driver: &str, part: &str) -> Device {
    Device {
        name: name.into(),
        kind,
        driver: Some(driver.into()),
        bus: Bus::Pci,
        address: format!("0000:00:0{}.0", &name[6..]),
        status: Some(15),
        negotiated: Features::of([
            transport::VERSION_1,
            transport::EVENT_IDX,
            transport::INDIRECT_DESC,
        ]),
        sharing: Sharing::Own,
        parts: vec![part.into()],
        ..Device::default()
    }
}

/// Assigns its vectors, one per queue, to one CPU each.
fn wire(device: &mut Device, roles: &[Role], each: u32) {
    let irqs = 24 + 16 * device.kind.0;
    for index in 0..each {
        for (at, role) in (0..).zip(roles) {
            let irq = irqs + 2 * index + at;
            let word = match role {
                Role::Input => "input",
                Role::Output => "output",
                _ => "req",
            };
            device.queues.push(Queue {
                role: role.clone(),
                index,
                irq: Some(irq),
            });
            device.vectors.push(Vector {
                irq,
                name: format!("{}-{word}.{index}", device.name),
                affinity: vec![index],
                effective: vec![index],
                landed: vec![(index, 50_000)],
            });
        }
    }
}

pub(super) fn nic(name: &str, device: &str) -> Nic {
    let queue = |direction| {
        move |index| NicQueue {
            direction,
            index,
            cpus: Some(vec![index]),
            counters: Counters {
                packets: Some(1_000_000),
                bytes: Some(1 << 30),
                drops: Some(0),
                kicks: Some(1000),
                timeouts: (direction == Direction::Transmit).then_some(0),
                ..Counters::default()
            },
        }
    };
    Nic {
        name: name.into(),
        index: 2,
        mac: "02:00:00:00:00:01".into(),
        kind: NicKind::Virtio,
        driver: "virtio_net".into(),
        device: Some(device.into()),
        address: "0000:00:01.0".into(),
        up: true,
        carrier: Some(true),
        mtu: 1450,
        dhcp_mtu: Some(1450),
        channels: Some(Channels {
            current: CPUS,
            possible: CPUS,
        }),
        queues: (0..CPUS)
            .map(queue(Direction::Receive))
            .chain((0..CPUS).map(queue(Direction::Transmit)))
            .collect(),
        ..Nic::default()
    }
}

pub(super) fn disk(name: &str, device: &str) -> Disk {
    Disk {
        name: name.into(),
        kind: DiskKind::VirtioBlk,
        driver: "virtio_blk".into(),
        device: Some(device.into()),
        bytes: 10 << 30,
        serial: Some("data".into()),
        queues: (0..CPUS)
            .map(|cpu| DiskQueue {
                cpus: vec![cpu],
                depth: Some(256),
            })
            .collect(),
        write_cache: Some(WriteCache::Back),
        ..Disk::default()
    }
}

pub(super) fn healthy() -> Machine {
    let all: Vec<u32> = (0..CPUS).collect();
    let mut network = device("virtio1", Kind::NET, "virtio_net", "eth0");
    let offloads = [
        net::MRG_RXBUF,
        net::CSUM,
        net::GUEST_CSUM,
        net::HOST_TSO4,
        net::HOST_TSO6,
        net::GUEST_TSO4,
        net::GUEST_TSO6,
        net::MQ,
    ];
    network.negotiated = offloads.into_iter().fold(network.negotiated, Features::with);
    wire(&mut network, &[Role::Input, Role::Output], CPUS);
    let mut block = device("virtio2", Kind::BLOCK, "virtio_blk", "vda");
    wire(&mut block, &[Role::Request], CPUS);
    let random = device("virtio3", Kind::RNG, "virtio_rng", "virtio_rng.0");
    let mut console = device("virtio4", Kind::CONSOLE, "virtio_console", "vport4p1");
    // Normal for a console: it has more queues than vectors.
    console.sharing = Sharing::Shared;
    Machine {
        kernel: "6.12.0".into(),
        cpus: Cpus {
            online: all.clone(),
            present: all,
            possible: (0..16).collect(),
            smt: Some("on".into()),
            random: Some(true),
            ..Cpus::default()
        },
        devices: vec![network, block, random, console],
        nics: vec![nic("eth0", "virtio1")],
        disks: vec![disk("vda", "virtio2")],
        vectors: Vectors {
            by_device: vec![("0000:00:01.0".into(), 9), ("0000:00:02.0".into(), 5)],
            used: 14,
            limit: Some(800),
        },
        asked_offered: false,
        unread: Vec::new(),
    }
}

/// State after a run that found `eth0` as the kernel had set it up.
pub(super) fn state() -> NicState {
    let standing = NicStatus {
        mac: "02:00:00:00:00:01".into(),
        standing: QueueStatus::Spread,
        first: CPUS,
        first_cpus: CPUS,
        ..NicStatus::default()
    };
    NicState {
        nics: [("eth0".to_owned(), standing)].into(),
        ..NicState::default()
    }
}

pub(super) fn found(machine: &Machine) -> Vec<Finding> {
    findings(machine, None, &NicSettings::default())
}

pub(super) fn found_with(machine: &Machine, state: &NicState) -> Vec<Finding> {
    findings(machine, Some(state), &NicSettings::default())
}

/// Id, severity and subject of each finding.
pub(super) fn short(all: &[Finding]) -> Vec<String> {
    all.iter()
        .map(|one| format!("{} {:?} {}", one.id, one.severity, one.subject.name))
        .collect()
}

/// The same machine with one vCPU.
pub(super) fn with_one_cpu(mut machine: Machine) -> Machine {
    machine.cpus.online = vec![0];
    machine.cpus.present = vec![0];
    machine
}
