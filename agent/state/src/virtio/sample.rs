//! A KubeVirt guest for tests: two vCPUs, an interface that uses one of its two queues, a disk, a
//! console.

use virtfleet_agent_core::{
    nic::state::{NicState, NicStatus, QueueStatus},
    virtio::{
        Bus, Channels, Coalescing, Counters, Cpus, Device, Direction, Disk, DiskKind, DiskQueue, Features,
        Kind, Machine, Nic, NicKind, NicQueue, Queue, Rings, Role, Sharing, Unread, Vector, Vectors,
        WriteCache,
        features::{blk, net, transport},
    },
};

fn device(name: &str, kind: Kind, driver: &str, address: &str, part: &str) -> Device {
    Device {
        name: name.into(),
        kind,
        driver: Some(driver.into()),
        bus: Bus::Pci,
        address: address.into(),
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

fn add(device: &mut Device, role: Role, index: u32, irq: u32) {
    let word = match role {
        Role::Input => "input",
        Role::Output => "output",
        _ => "req",
    };
    device.vectors.push(Vector {
        irq,
        name: format!("{}-{word}.{index}", device.name),
        affinity: vec![index],
        effective: vec![index],
        landed: vec![(index, u64::from(irq) * 1000)],
    });
    device.queues.push(Queue {
        role,
        index,
        irq: Some(irq),
    });
}

fn queue(direction: Direction, index: u32, packets: u64) -> NicQueue {
    NicQueue {
        direction,
        index,
        cpus: Some(vec![0, 1]),
        counters: Counters {
            packets: Some(packets),
            bytes: Some(packets * 1000),
            drops: (direction == Direction::Receive).then_some(0),
            kicks: Some(packets / 10),
            timeouts: (direction == Direction::Transmit).then_some(0),
            ..Counters::default()
        },
    }
}

fn nic() -> Nic {
    Nic {
        name: "eth0".into(),
        index: 2,
        mac: "02:00:00:00:00:01".into(),
        kind: NicKind::Virtio,
        driver: "virtio_net".into(),
        device: Some("virtio1".into()),
        address: "0000:01:00.0".into(),
        up: true,
        operstate: "up".into(),
        carrier: Some(true),
        mtu: 1450,
        dhcp_mtu: Some(1450),
        channels: Some(Channels {
            current: 1,
            possible: 2,
        }),
        rings: Some(Rings {
            rx: 256,
            tx: 256,
            rx_possible: 256,
            tx_possible: 256,
        }),
        coalescing: Some(Coalescing::default()),
        queues: vec![
            queue(Direction::Receive, 0, 4_000),
            queue(Direction::Transmit, 0, 2_000),
        ],
    }
}

fn disk() -> Disk {
    Disk {
        name: "vda".into(),
        kind: DiskKind::VirtioBlk,
        driver: "virtio_blk".into(),
        device: Some("virtio2".into()),
        address: "0000:02:00.0".into(),
        bytes: 10 << 30,
        serial: Some("root".into()),
        queues: (0..2)
            .map(|cpu| DiskQueue {
                cpus: vec![cpu],
                depth: Some(256),
            })
            .collect(),
        requests: Some(256),
        scheduler: Some("none".into()),
        schedulers: vec!["none".into(), "mq-deadline".into()],
        write_cache: Some(WriteCache::Back),
        discard: Some(1 << 30),
        read_only: false,
        in_flight: Some((0, 1)),
    }
}

/// A machine whose interface uses one of its two queues.
pub fn machine() -> Machine {
    let mut network = device("virtio1", Kind::NET, "virtio_net", "0000:01:00.0", "eth0");
    let bits = [
        net::MRG_RXBUF,
        net::CSUM,
        net::GUEST_CSUM,
        net::HOST_TSO4,
        net::HOST_TSO6,
        net::GUEST_TSO4,
        net::GUEST_TSO6,
        net::MQ,
    ];
    network.negotiated = bits.into_iter().fold(network.negotiated, Features::with);
    network.offered = Some(network.negotiated.with(net::RSS));
    for index in 0..2 {
        add(&mut network, Role::Input, index, 25 + 2 * index);
        add(&mut network, Role::Output, index, 26 + 2 * index);
    }
    let mut block = device("virtio2", Kind::BLOCK, "virtio_blk", "0000:02:00.0", "vda");
    block.negotiated = block.negotiated.with(blk::FLUSH).with(blk::MQ);
    for index in 0..2 {
        add(&mut block, Role::Request, index, 30 + index);
    }
    let mut console = device(
        "virtio3",
        Kind::CONSOLE,
        "virtio_console",
        "0000:03:00.0",
        "vport3p1",
    );
    console.sharing = Sharing::Shared;
    let random = device("virtio4", Kind::RNG, "virtio_rng", "0000:04:00.0", "virtio_rng.0");
    Machine {
        kernel: "6.12.0".into(),
        cpus: Cpus {
            online: vec![0, 1],
            present: vec![0, 1],
            possible: (0..8).collect(),
            ..Cpus::default()
        },
        devices: vec![network, block, console, random],
        nics: vec![nic()],
        disks: vec![disk()],
        vectors: Vectors {
            by_device: vec![("0000:01:00.0".into(), 6), ("0000:02:00.0".into(), 3)],
            used: 9,
            limit: Some(400),
        },
        asked_offered: false,
        unread: vec![Unread {
            what: "/proc/irq/25/effective_affinity_list".into(),
            because: "permission denied".into(),
        }],
    }
}

/// A machine without findings.
pub fn healthy() -> Machine {
    let mut machine = machine();
    machine.nics[0].channels = Some(Channels {
        current: 2,
        possible: 2,
    });
    machine.unread.clear();
    machine
}

/// `count` interfaces of `queues` pairs each.
pub fn large(count: u32, queues: u32) -> Machine {
    let mut machine = machine();
    machine.devices.clear();
    machine.nics.clear();
    for number in 0..count {
        let name = format!("virtio{number}");
        let address = format!("0000:{number:02x}:00.0");
        let part = format!("eth{number}");
        let mut one = device(&name, Kind::NET, "virtio_net", &address, &part);
        let mut nic = nic();
        nic.queues.clear();
        for index in 0..queues {
            let irq = 100 + 2 * (number * queues + index);
            add(&mut one, Role::Input, index, irq);
            add(&mut one, Role::Output, index, irq + 1);
            nic.queues.push(queue(Direction::Receive, index, 10));
            nic.queues.push(queue(Direction::Transmit, index, 10));
        }
        nic.name = part;
        nic.device = Some(name);
        machine.devices.push(one);
        machine.nics.push(nic);
    }
    machine
}

/// State that a report-only reconcile run leaves for [`machine`].
pub fn state() -> NicState {
    let standing = NicStatus {
        mac: "02:00:00:00:00:01".into(),
        standing: QueueStatus::Differs,
        because: "1 of 2 queues, and nic.multiqueue is report-only".into(),
        first: 1,
        first_cpus: 2,
        ..NicStatus::default()
    };
    NicState {
        v: 1,
        nics: [("eth0".to_owned(), standing)].into(),
        ..NicState::default()
    }
}
