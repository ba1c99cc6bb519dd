use std::{fs, os::unix::fs::symlink, path::Path};

use nix::errno::Errno;
use virtfleet_agent_core::virtio::{
    Bus, Channels, Counters, Direction, DiskKind, Features, NicKind, Role, WriteCache, features,
};

use super::*;
use crate::{
    QueueCounters,
    nic::nic_calls::fake::{FakeNic, FakeNics},
};

const NET: &str = "0000:00:03.0/virtio2";

/// A guest with a network interface, a disk, a SCSI controller with a disk, and a random number
/// source.
struct Guest(tempfile::TempDir);

impl Guest {
    fn new() -> Self {
        let guest = Self(tempfile::tempdir().unwrap());
        for (path, text) in [
            ("proc/sys/kernel/osrelease", "6.12.38\n"),
            (
                "proc/interrupts",
                "            CPU0       CPU2\n \
                 24:    5    0  PCI-MSIX-0000:00:03.0   0-edge      virtio2-config\n \
                 25:  100    7  PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n \
                 26:   10    0  PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0\n \
                 27:    0    0  PCI-MSI 49152-edge      virtio10-config\n \
                 28:    0    9  PCI-MSI 49153-edge      virtio10-virtqueues\n \
                 10:    3    4  IO-APIC  10-fasteoi   virtio1, uhci_hcd\n\
                 LOC:   9    9   Local timer interrupts\n",
            ),
            ("proc/irq/25/smp_affinity_list", "0-2\n"),
            ("proc/irq/25/effective_affinity_list", "2\n"),
            ("sys/devices/system/cpu/online", "0,2\n"),
            ("sys/devices/system/cpu/present", "0-2\n"),
            ("sys/devices/system/cpu/possible", "0-7\n"),
            (
                "sys/class/misc/hw_random/rng_available",
                "tpm-rng-0 virtio_rng.0 \n",
            ),
        ] {
            guest.put(path, text);
        }
        guest.virtio(NET, "0x0001", "virtio_net", &features_line());
        guest.virtio("0000:00:02.0/virtio1", "0x0002", "virtio_blk", &"0".repeat(64));
        guest.virtio("0000:00:04.0/virtio10", "0x0008", "virtio_scsi", &"0".repeat(64));
        guest.virtio("0000:00:05.0/virtio3", "0x0004", "virtio_rng", &"0".repeat(64));
        guest.nic();
        guest.disks();
        guest
    }
    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fn link(&self, path: &str, target: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }
    fn virtio(&self, place: &str, kind: &str, driver: &str, features: &str) {
        let (address, name) = place.split_once('/').unwrap();
        let folder = format!("sys/devices/pci0000:00/{place}");
        self.put(&format!("{folder}/device"), kind);
        self.put(&format!("{folder}/status"), "0x0000000f\n");
        self.put(&format!("{folder}/features"), features);
        self.link(
            &format!("{folder}/driver"),
            &format!("../../../../bus/virtio/drivers/{driver}"),
        );
        self.link(
            &format!("sys/devices/pci0000:00/{address}/subsystem"),
            "../../../bus/pci",
        );
        for irq in 0..2 {
            self.put(
                &format!("sys/devices/pci0000:00/{address}/msi_irqs/{}", 24 + irq),
                "msix\n",
            );
        }
        let target = format!("../../../devices/pci0000:00/{place}");
        self.link(&format!("sys/bus/virtio/devices/{name}"), &target);
        let target = format!("../../../devices/pci0000:00/{address}");
        self.link(&format!("sys/bus/pci/devices/{address}"), &target);
    }
    fn nic(&self) {
        let folder = format!("sys/devices/pci0000:00/{NET}/net/eth0");
        for (file, text) in [
            ("address", "52:54:00:00:00:01\n"),
            ("ifindex", "7\n"),
            ("flags", "0x1003\n"),
            ("carrier", "1\n"),
            ("operstate", "up\n"),
            ("mtu", "1450\n"),
            ("queues/rx-0/rps_cpus", "0\n"),
            ("queues/rx-1/rps_cpus", "00000000,00000005\n"),
            ("queues/tx-0/xps_cpus", "3\n"),
            ("queues/tx-0/tx_timeout", "4\n"),
            ("queues/tx-1/tx_timeout", "0\n"),
        ] {
            self.put(&format!("{folder}/{file}"), text);
        }
        self.link(&format!("{folder}/device"), "../../../virtio2");
        let target = format!("../../devices/pci0000:00/{NET}/net/eth0");
        self.link("sys/class/net/eth0", &target);
        self.put("sys/class/net/lo/mtu", "65536\n");
        self.put("run/systemd/netif/leases/7", "# private\nMTU=1400\n");
    }
    fn disks(&self) {
        let folder = "sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda";
        for (file, text) in [
            ("size", "2048\n"),
            // Reading this attribute sends a request to the device.
            ("serial", "asked"),
            ("dev", "253:0\n"),
            ("ro", "0\n"),
            ("inflight", "       1        2\n"),
            ("cache_type", "write back\n"),
            ("mq/0/cpu_list", "0, 2\n"),
            ("mq/0/nr_tags", "256\n"),
            ("queue/nr_requests", "256\n"),
            ("queue/scheduler", "[none] mq-deadline\n"),
            ("queue/write_cache", "write through\n"),
            ("queue/discard_max_bytes", "0\n"),
        ] {
            self.put(&format!("{folder}/{file}"), text);
        }
        self.link(&format!("{folder}/device"), "../../../virtio1");
        self.link("sys/block/vda", &folder.replace("sys/", "../"));
        let folder = "sys/devices/pci0000:00/0000:00:04.0/virtio10/host2/target2:0:0/2:0:0:0/block/sda";
        self.put(&format!("{folder}/size"), "8\n");
        self.put(&format!("{folder}/ro"), "1\n");
        for queue in 0..2 {
            self.put(&format!("{folder}/mq/{queue}/cpu_list"), &format!("{queue}\n"));
        }
        self.link(&format!("{folder}/device"), "../../../2:0:0:0");
        self.link(
            "sys/devices/pci0000:00/0000:00:04.0/virtio10/host2/target2:0:0/2:0:0:0/driver",
            "x/sd",
        );
        self.link("sys/block/sda", &folder.replace("sys/", "../"));
        self.put("sys/block/loop0/size", "0\n");
        self.put("udev/b253:0", "E:ID_SERIAL=data\nE:ID_SERIAL_SHORT=\n");
    }
    fn roots(&self) -> Roots {
        Roots {
            rootfs: self.0.path().to_owned(),
            procfs: self.0.path().join("proc"),
            sysfs: self.0.path().join("sys"),
            udev_data: self.0.path().join("udev"),
        }
    }
    fn machine(&self) -> Machine {
        observe(&self.roots(), &drivers(), false)
    }
}

fn features_line() -> String {
    Features::of([features::net::MQ, features::transport::EVENT_IDX]).to_sysfs(128)
}

fn drivers() -> FakeNics {
    let packets = Counters {
        packets: Some(5),
        ..Counters::default()
    };
    let nic = FakeNic {
        index: 7,
        channels: Some(Channels {
            current: 2,
            possible: 4,
        }),
        statistics: vec![
            ("rx_queue_1_bytes".to_owned(), 9),
            ("tx_queue_1_kicks".to_owned(), 3),
        ],
        queue_counters: Some(vec![QueueCounters {
            direction: Direction::Receive,
            index: 1,
            counters: packets,
        }]),
        ..FakeNic::default()
    };
    FakeNics::new([("eth0", nic)])
}

fn names<T>(all: &[T], name: impl Fn(&T) -> &str) -> Vec<String> {
    all.iter().map(|one| name(one).to_owned()).collect()
}

#[test]
fn devices_are_found_with_their_queues() {
    let machine = Guest::new().machine();
    assert_eq!(machine.unread, []);
    assert_eq!(
        (machine.kernel.as_str(), machine.cpus.online.as_slice()),
        ("6.12.38", &[0, 2][..])
    );
    assert_eq!(
        names(&machine.devices, |device| &device.name),
        ["virtio1", "virtio2", "virtio3", "virtio10"]
    );
    let net = machine.device("virtio2").unwrap();
    assert_eq!(
        (net.kind, net.bus, net.address.as_str()),
        (Kind::NET, Bus::Pci, "0000:00:03.0")
    );
    assert_eq!(
        (net.driver.as_deref(), net.status),
        (Some("virtio_net"), Some(15))
    );
    assert!(net.negotiated.has(features::net::MQ) && net.offered.is_none());
    assert_eq!((net.sharing, net.queues.len()), (Sharing::Own, 2));
    let input = net.vector(25).unwrap();
    assert_eq!(input.landed, [(0, 100), (2, 7)]);
    assert_eq!(
        (input.affinity.as_slice(), input.effective.as_slice()),
        (&[0, 1, 2][..], &[2][..])
    );
    let blk = machine.device("virtio1").unwrap();
    assert_eq!(
        (blk.sharing, blk.vectors[0].name.as_str()),
        (Sharing::Intx, "virtio1")
    );
    assert_eq!((blk.queues.len(), blk.queues[0].irq), (1, Some(10)));
    let scsi = machine.device("virtio10").unwrap();
    assert_eq!(
        (scsi.sharing, scsi.queues_of(&Role::Request).count()),
        (Sharing::Shared, 2)
    );
    assert_eq!(
        (scsi.queues[0].irq, scsi.parts.as_slice()),
        (Some(28), &["host2".to_owned(), "sda".to_owned()][..])
    );
    assert_eq!(machine.device("virtio3").unwrap().parts, ["virtio_rng.0"]);
    assert_eq!(machine.vectors.used, 8);
    assert_eq!(machine.vectors.by_device[0], ("0000:00:02.0".to_owned(), 2));
}

#[test]
fn interfaces_and_disks_are_read() {
    let machine = Guest::new().machine();
    assert_eq!(names(&machine.nics, |nic| &nic.name), ["eth0"]);
    let nic = &machine.nics[0];
    assert_eq!(
        (nic.kind, nic.driver.as_str(), nic.device.as_deref()),
        (NicKind::Virtio, "virtio_net", Some("virtio2"))
    );
    assert_eq!(
        (nic.index, nic.mtu, nic.dhcp_mtu, nic.carrier, nic.up),
        (7, 1450, Some(1400), Some(true), true)
    );
    let queue = |at: usize| {
        (
            nic.queues[at].direction,
            nic.queues[at].index,
            nic.queues[at].cpus.clone(),
        )
    };
    assert_eq!(queue(0), (Direction::Receive, 0, Some(vec![])));
    assert_eq!(queue(1), (Direction::Receive, 1, Some(vec![0, 2])));
    assert_eq!(queue(2), (Direction::Transmit, 0, Some(vec![0, 1])));
    assert_eq!(queue(3), (Direction::Transmit, 1, None));
    let counters = |at: usize| &nic.queues[at].counters;
    assert_eq!((counters(1).packets, counters(1).bytes), (Some(5), Some(9)));
    assert_eq!(
        (counters(2).timeouts, counters(3).kicks, counters(3).timeouts),
        (Some(4), Some(3), Some(0))
    );
    assert_eq!(names(&machine.disks, |disk| &disk.name), ["sda", "vda"]);
    let (sda, vda) = (&machine.disks[0], &machine.disks[1]);
    assert_eq!(
        (sda.kind, sda.device.as_deref(), sda.read_only),
        (DiskKind::VirtioScsi, Some("virtio10"), true)
    );
    assert_eq!(
        (vda.kind, vda.address.as_str(), vda.bytes),
        (DiskKind::VirtioBlk, "0000:00:02.0", 1 << 20)
    );
    assert_eq!(
        (vda.serial.as_deref(), vda.in_flight),
        (Some("data"), Some((1, 2)))
    );
    assert_eq!(
        (vda.queues[0].cpus.as_slice(), vda.queues[0].depth),
        (&[0, 2][..], Some(256))
    );
    assert_eq!(
        (vda.write_cache, vda.discard, vda.scheduler.as_deref()),
        (Some(WriteCache::Through), Some(0), Some("none"))
    );
}

#[test]
fn offered_features_are_read_only_on_request() {
    let guest = Guest::new();
    guest.put("sys/kernel/debug/virtio/virtio2/device_features", "0\n22\n32\n");
    assert_eq!(guest.machine().device("virtio2").unwrap().offered, None);
    let machine = observe(&guest.roots(), &drivers(), true);
    assert_eq!(
        machine.device("virtio2").unwrap().offered,
        Some(Features::of([0, 22, 32]))
    );
    assert_eq!(machine.device("virtio1").unwrap().offered, None);
    assert_eq!(machine.unread, []);
}

#[test]
fn failures_are_recorded_and_the_rest_is_read() {
    let guest = Guest::new();
    let sys = |path: &str| guest.0.path().join("sys").join(path);
    fs::write(sys("bus/virtio/devices/virtio2/features"), "101").unwrap();
    fs::remove_file(sys("bus/virtio/devices/virtio1/status")).unwrap();
    fs::write(sys("block/vda/size"), "x").unwrap();
    fs::write(sys("class/net/eth0/queues/tx-0/xps_cpus"), "zz").unwrap();
    fs::write(sys("devices/system/cpu/possible"), vec![b'1'; 5000]).unwrap();
    guest.put(
        "proc/interrupts",
        "CPU0\n 25: 1 PCI-MSI 1-edge virtio2-input.0\n 26: x virtio2-output.0\n",
    );
    let refusing = FakeNic {
        refuses: Some(Errno::EPERM),
        ..FakeNic::default()
    };
    let machine = observe(&guest.roots(), &FakeNics::new([("eth0", refusing)]), false);
    let root = format!("{}/", guest.0.path().display());
    let unread: Vec<(String, &str)> = machine
        .unread
        .iter()
        .map(|one| (one.what.replace(&root, ""), one.because.as_str()))
        .collect();
    let unread: Vec<(&str, &str)> = unread.iter().map(|one| (one.0.as_str(), one.1)).collect();
    assert_eq!(
        unread,
        [
            ("sys/devices/system/cpu/possible", "larger than 4095 bytes"),
            (
                "proc/interrupts",
                "line 3: expected a count for each CPU, found \"x\""
            ),
            ("sys/bus/virtio/devices/virtio1/status", "no such file"),
            (
                "sys/bus/virtio/devices/virtio2/features",
                "expected 64 or 128 characters 0 and 1, found \"101\""
            ),
            (
                "sys/class/net/eth0/queues/tx-0/xps_cpus",
                "line 1: expected a mask of CPUs such as 3 or f,00000001, found \"zz\""
            ),
            ("channels of eth0", "Operation not permitted"),
            ("rings of eth0", "Operation not permitted"),
            ("coalescing of eth0", "Operation not permitted"),
            ("statistics of eth0", "Operation not permitted"),
            ("sys/block/vda/size", "expected a number, found \"x\""),
        ]
    );
    assert_eq!(
        (machine.devices.len(), machine.nics.len(), machine.disks.len()),
        (4, 1, 2)
    );
    assert_eq!(machine.device("virtio2").unwrap().queues.len(), 1);
}

#[test]
fn an_interface_whose_driver_is_gone_is_read_partially() {
    let guest = Guest::new();
    let machine = observe(&guest.roots(), &FakeNics::default(), false);
    assert_eq!((machine.nics[0].channels, machine.nics[0].mtu), (None, 1450));
    assert_eq!(machine.unread, []);
    let net = machine.device("virtio2").unwrap();
    assert_eq!(net.queues.len(), 2);
}

#[test]
fn an_empty_tree() {
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("none");
    let roots = Roots {
        rootfs: none.clone(),
        procfs: none.clone(),
        sysfs: none.clone(),
        udev_data: none,
    };
    let machine = observe(&roots, &FakeNics::default(), true);
    assert!(machine.devices.is_empty() && machine.nics.is_empty() && machine.disks.is_empty());
    assert_eq!(machine.unread.len(), 5, "{:?}", machine.unread);
}

#[test]
fn the_number_of_notes_is_bounded() {
    let roots = Roots::default();
    let mut reader = FileReader::new(&roots);
    for _ in 0..300 {
        reader.note(Path::new("x"), "y");
    }
    let mark = reader.mark();
    reader.note(Path::new("x"), "y");
    reader.forget(mark);
    let unread = reader.unread();
    assert_eq!(
        (unread.len(), unread[256].because.as_str()),
        (257, "44 more files could not be read")
    );
}

mod offline;
