use virtfleet_agent_core::virtio::{
    Bus, Direction, DiskKind, Features, Kind, NicKind, Role, Sharing, WriteCache,
    features::{net, transport},
};
use virtfleet_tests::roots::virtio::{Disk, Kernel, Lines, Nic, Other, Tree, Virtio};

use super::seen;

#[test]
fn kernels_from_5_10_to_6_18() {
    for kernel in Kernel::ALL {
        let tree = Tree {
            kernel,
            ..Tree::usual(4, 2)
        };
        let machine = seen(&tree);
        assert_eq!(machine.unread, [], "{}", kernel.release);
        assert_eq!(machine.kernel, kernel.release);
        assert_eq!(machine.cpus.online, [0, 1, 2, 3]);
        assert_eq!(
            (machine.devices.len(), machine.nics.len(), machine.disks.len()),
            (8, 2, 2)
        );
        let device = machine.device("virtio1").unwrap();
        assert_eq!(
            (device.kind, device.bus, device.sharing),
            (Kind::NET, Bus::Pci, Sharing::Own)
        );
        assert!(device.negotiated.has(net::MQ) && device.negotiated.has(transport::EVENT_IDX));
        assert_eq!(device.offered.is_some(), kernel.debugfs);
        assert_eq!(device.parts, ["eth1"]);
        for role in [Role::Input, Role::Output] {
            let queues: Vec<_> = device.queues_of(&role).collect();
            assert_eq!(queues.len(), 4);
            for queue in queues {
                let vector = device.vector(queue.irq.unwrap()).unwrap();
                assert_eq!(vector.affinity, [queue.index]);
                assert_eq!(vector.effective.is_empty(), !kernel.effective);
                assert_eq!(vector.landed.len(), 1);
                assert_eq!((vector.landed[0].0, vector.count() > 1000), (queue.index, true));
            }
        }
        let nic = &machine.nics[1];
        assert_eq!(
            (nic.name.as_str(), nic.kind, nic.device.as_deref()),
            ("eth1", NicKind::Virtio, Some("virtio1"))
        );
        assert_eq!(
            (nic.dhcp_mtu, nic.queues.len(), nic.channels.unwrap().possible),
            (Some(1450), 8, 4)
        );
        assert_eq!(
            (nic.queues[3].direction, nic.queues[3].counters.packets),
            (Direction::Receive, Some(1000))
        );
        assert_eq!(nic.queues[6].cpus.as_deref(), Some(&[2][..]));
        let disk = &machine.disks[1];
        assert_eq!(
            (disk.name.as_str(), disk.kind, disk.queues.len()),
            ("vdb", DiskKind::VirtioBlk, 4)
        );
        assert_eq!(
            (disk.queues[3].cpus.as_slice(), disk.write_cache),
            (&[3][..], Some(WriteCache::Back))
        );
        let used: u32 = machine.vectors.by_device.iter().map(|one| one.1).sum();
        // Interfaces 9 each, disks 5 each, balloon 5, source 2, sockets 4, console 7.
        assert_eq!((used, machine.vectors.used), (46, 46));
        assert_eq!(machine.vectors.limit.is_some(), cfg!(target_arch = "x86_64"));
    }
}

#[test]
fn shared_vectors_and_lines() {
    let nic = |lines| {
        let mut nic = Nic::pairs(2, 4);
        nic.virtio().unwrap().lines = lines;
        nic
    };
    let disk = |mut disk: Disk, lines| {
        disk.virtio().unwrap().lines = lines;
        disk
    };
    let tree = Tree {
        cpus: 4,
        nics: vec![nic(Lines::Shared), nic(Lines::Intx), nic(Lines::None)],
        disks: vec![
            disk(Disk::scsi(3), Lines::Shared),
            disk(Disk::default(), Lines::Intx),
        ],
        ..Tree::default()
    };
    let machine = seen(&tree);
    assert_eq!(machine.unread, []);
    let sharing: Vec<_> = machine.devices.iter().map(|device| device.sharing).collect();
    assert_eq!(
        sharing,
        [
            Sharing::Shared,
            Sharing::Intx,
            Sharing::Unknown,
            Sharing::Shared,
            Sharing::Intx
        ]
    );
    let queues: Vec<_> = machine.devices.iter().map(|device| device.queues.len()).collect();
    assert_eq!(queues, [8, 8, 8, 3, 1]);
    for (device, irqs) in machine
        .devices
        .iter()
        .zip([Some(25), Some(11), None, Some(27), Some(11)])
    {
        assert!(device.queues.iter().all(|queue| queue.irq == irqs), "{device:?}");
    }
    assert_eq!(machine.devices[4].vectors[0].name, "virtio4");
}

#[test]
fn devices_that_do_not_work() {
    let broken = |status| Other {
        virtio: Virtio {
            status,
            offered: Features::of([44]),
            ..Virtio::with(&[])
        },
        ..Other::fs()
    };
    let others = vec![broken(0x4f), broken(0x83), Other::without_driver(Kind(77))];
    let machine = seen(&Tree {
        others,
        ..Tree::default()
    });
    let [reset, failed, alone] = &machine.devices[..] else {
        panic!("{:?}", machine.devices)
    };
    assert!(reset.needs_reset() && !reset.failed() && failed.failed());
    assert_eq!(reset.offered.unwrap().names(Kind::FS).last().unwrap(), "bit 44");
    assert_eq!(
        (alone.driver.as_deref(), alone.status, alone.queues.len()),
        (None, Some(1), 0)
    );
    assert_eq!(alone.kind.to_string(), "type 77");
    let names: Vec<_> = reset
        .queues
        .iter()
        .map(|queue| (queue.role.clone(), queue.index))
        .collect();
    assert_eq!(names, [(Role::Request, 0), (Role::Other("hiprio".to_owned()), 0)]);
}

#[test]
fn what_stands_where_virtio_was_meant() {
    let tree = Tree {
        nics: vec![
            Nic::emulated("e1000e"),
            Nic::emulated("8139cp"),
            Nic::function("mlx5_core", 2),
        ],
        disks: vec![
            Disk::emulated("ahci"),
            Disk::nvme(2),
            Disk::scsi(1),
            Disk::emulated("sym53c8xx"),
        ],
        ..Tree::default()
    };
    let machine = seen(&tree);
    assert_eq!(machine.unread, []);
    let nics: Vec<_> = machine
        .nics
        .iter()
        .map(|nic| (nic.kind, nic.driver.as_str()))
        .collect();
    assert_eq!(
        nics,
        [
            (NicKind::Emulated, "e1000e"),
            (NicKind::Emulated, "8139cp"),
            (NicKind::Function, "mlx5_core")
        ]
    );
    assert!(
        machine
            .nics
            .iter()
            .all(|nic| nic.device.is_none() && nic.address.starts_with("0000:00:0"))
    );
    let disks: Vec<_> = machine
        .disks
        .iter()
        .map(|disk| {
            (
                disk.name.as_str(),
                disk.kind,
                disk.driver.as_str(),
                disk.address.as_str(),
            )
        })
        .collect();
    assert_eq!(
        disks,
        [
            ("nvme0n1", DiskKind::Nvme, "nvme", "0000:00:05.0"),
            ("sda", DiskKind::Emulated, "ahci", "0000:00:04.0"),
            ("sdb", DiskKind::VirtioScsi, "virtio_scsi", "0000:00:06.0"),
            ("sdc", DiskKind::Emulated, "sym53c8xx", "0000:00:07.0"),
        ]
    );
    assert_eq!(machine.devices[0].parts, ["host1", "sdb"]);
}

#[test]
fn the_rest_of_a_guest() {
    let machine = seen(&Tree::usual(1, 1));
    let parts: Vec<_> = machine
        .devices
        .iter()
        .map(|device| (device.kind.to_string(), device.parts.join(" ")))
        .collect();
    let parts: Vec<_> = parts
        .iter()
        .map(|(kind, parts)| (kind.as_str(), parts.as_str()))
        .collect();
    assert_eq!(
        parts,
        [
            ("net", "eth0"),
            ("blk", "vda"),
            ("blk", "vdb"),
            ("balloon", ""),
            ("rng", "virtio_rng.0"),
            ("vsock", ""),
            ("console", "vport0p1"),
        ]
    );
    let console = &machine.devices[6];
    assert_eq!(console.queues_of(&Role::Input).count(), 2);
    assert_eq!(
        machine.nics[0].queues[1].cpus, None,
        "a single queue has no xps_cpus"
    );
}

#[test]
fn channels_that_are_set_are_seen() {
    use virtfleet_agent_host::{NicCalls as _, virtio::observe};
    let tree = Tree {
        cpus: 5,
        offline: vec![1],
        nics: vec![Nic::pairs(1, 3)],
        ..Tree::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let guest = tree.write(folder.path()).unwrap();
    let queues = || {
        let machine = observe(&guest.roots, &guest.nics, false);
        assert_eq!(machine.unread, []);
        let nic = machine.nics.into_iter().next().unwrap();
        let sends = nic
            .queues
            .into_iter()
            .filter(|queue| queue.direction == Direction::Transmit);
        (
            nic.channels.unwrap().current,
            sends.map(|queue| queue.cpus.unwrap()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(queues(), (1, vec![vec![0, 2, 3, 4]]));
    guest.nics.set_channels("eth0", 3).unwrap();
    assert_eq!(queues(), (3, vec![vec![0, 2], vec![3], vec![4]]));
    guest.nics.set_channels("eth0", 2).unwrap();
    assert_eq!(queues(), (2, vec![vec![0, 2], vec![3, 4]]));
    assert!(guest.nics.set_channels("eth0", 4).is_err());
    assert_eq!(
        guest.nics.set(),
        ["eth0 channels 3", "eth0 channels 2", "eth0 channels 4"]
    );
}
