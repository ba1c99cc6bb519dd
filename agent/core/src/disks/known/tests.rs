use proptest::prelude::*;

use super::*;
use crate::disks::{
    DeviceId, Wanted,
    fixtures::{GIB, VM, device, entry, fs_uuid, luks_uuid, positional},
    journal::{Journal, Progress},
};

/// What a run sees of kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kubelet {
    Never,
    /// It has run in any boot, and does not run now.
    Earlier,
    Runs,
}
use Kubelet::{Earlier, Never, Runs};

/// A VM: what its journal has, and its declared disks.
#[derive(Default)]
struct Vm {
    journal: Journal,
    wanted: Vec<Wanted>,
}

impl Vm {
    /// A VM whose first boot had these disks, and whose kubelet has run then.
    fn with(devices: &[Device]) -> Self {
        let mut vm = Self::default();
        assert!(vm.run("1", Never, devices).is_empty());
        assert!(vm.run("1", Runs, devices).is_empty());
        vm
    }

    /// One run: the kernel names of the disks that came later.
    fn run(&mut self, boot_id: &str, kubelet: Kubelet, devices: &[Device]) -> Vec<String> {
        let boot = Boot {
            vm_uuid: VM,
            boot_id,
            kubelet_ran: kubelet == Earlier,
            kubelet_runs: kubelet == Runs,
        };
        let mut devices = devices.to_vec();
        let list = KnownDisks::mark(&self.journal, &self.wanted, &boot, &mut devices);
        let late = devices.iter().filter(|device| device.came_later);
        let names = late.map(|device| device.id.name.clone()).collect();
        // A second run without changes finds and writes the same.
        self.journal.known_disks = Some(list.clone());
        let again = KnownDisks::mark(&self.journal, &self.wanted, &boot, &mut devices);
        assert_eq!(again, list);
        names
    }
}

/// The same disk after an event that gives it another sequence number, e.g. in another boot.
fn again(device: &Device, diskseq: u64) -> Device {
    changed(device, |id| id.diskseq = Some(diskseq))
}

fn changed(device: &Device, change: impl FnOnce(&mut DeviceId)) -> Device {
    let mut device = device.clone();
    change(&mut device.id);
    device
}

fn carrying(device: &Device, uuid: &str) -> Device {
    Device {
        carried: Carried::Uuid(uuid.to_owned()),
        ..device.clone()
    }
}

/// The disk at the address of another one.
fn at(place: &Device, device: &Device) -> Device {
    let syspath = place.syspath.replace(&place.id.name, &device.id.name);
    Device {
        syspath,
        ..device.clone()
    }
}

#[test]
fn list_is_open_until_a_kubelet_ran_or_the_first_boot_ended() {
    let [a, b, c, d] = [0, 1, 2, 3].map(|n| device(n, None));
    let mut vm = Vm::default();
    assert!(vm.run("1", Never, &[a.clone(), b.clone()]).is_empty());
    // The platform plugs in a disk slowly.
    let three = [a.clone(), b.clone(), c.clone()];
    assert!(vm.run("1", Never, &three).is_empty());
    let all = [a.clone(), b.clone(), c, d];
    assert_eq!(vm.run("1", Earlier, &all), ["vdd"]);
    // Even if the directory of kubelet is removed.
    assert_eq!(vm.run("1", Never, &all), ["vdd"]);
    assert_eq!(vm.run("2", Earlier, &all), ["vdd"]);
    // No kubelet, and another boot.
    let mut vm = Vm::default();
    assert!(vm.run("1", Never, &[a, b]).is_empty());
    assert_eq!(vm.run("2", Never, &all), ["vdc", "vdd"]);
}

#[test]
fn without_a_list_only_a_first_boot_knows_its_disks() {
    let [a, b] = [device(0, None), device(1, None)];
    let ours = [a.clone(), carrying(&b, &fs_uuid("data").to_uppercase())];
    let used = vec![entry("data", &b, Progress::Used)];
    let list = |vm_uuid: &str, open| KnownDisks {
        vm_uuid: vm_uuid.to_owned(),
        boot_id: "1".to_owned(),
        open,
        ..KnownDisks::default()
    };
    let journal = |known_disks: Option<KnownDisks>| Journal {
        known_disks,
        ..Journal::default()
    };
    let older = Journal {
        entries: used.clone(),
        ..Journal::default()
    };
    let closed = KnownDisks {
        kubelet_ran: true,
        ..list("other", true)
    };
    let broken = Journal {
        broken: vec![("KNOWN".to_owned(), "not JSON".to_owned())],
        ..Journal::default()
    };
    for (journal, kubelet, late) in [
        (Journal::default(), Never, &[][..]),
        // The agent is new in a VM that has run for long.
        (Journal::default(), Earlier, &["vda", "vdb"]),
        (Journal::default(), Runs, &["vda", "vdb"]),
        // An older agent has run here: what the journal has is known.
        (older.clone(), Never, &["vda"]),
        (older, Earlier, &["vda"]),
        (broken, Never, &["vda", "vdb"]),
        // Clones of this VM's root disk, one after its kubelet has run.
        (journal(Some(list("other", false))), Never, &[]),
        (journal(Some(closed)), Never, &["vda", "vdb"]),
        (journal(Some(list("other", true))), Earlier, &["vda", "vdb"]),
        (journal(Some(list(VM, true))), Never, &[]),
        (journal(Some(list(VM, false))), Never, &["vda", "vdb"]),
    ] {
        let devices = if journal.entries.is_empty() {
            [a.clone(), b.clone()]
        } else {
            ours.clone()
        };
        let mut vm = Vm {
            journal: journal.clone(),
            ..Vm::default()
        };
        assert_eq!(vm.run("1", kubelet, &devices), late, "{journal:?} {kubelet:?}");
    }
}

#[test]
fn disk_is_the_same_after_a_reboot_by_address_size_and_serial() {
    let [a, b, spare] = [device(0, None), device(1, None), device(5, None)];
    let named = device(1, Some("data1"));
    let ours = carrying(&b, &fs_uuid("data"));
    let grown = |device: &Device| changed(device, |id| id.size = 2 * GIB);
    for (then, now, known) in [
        (&b, b.clone(), true),
        // Another name, and another number of the virtio bus.
        (
            &b,
            Device {
                syspath: b.syspath.replace("virtio1", "virtio7").replace("vdb", "vdc"),
                ..changed(&b, |id| id.name = "vdc".to_owned())
            },
            true,
        ),
        (&b, named.clone(), true),
        (&named, b.clone(), false),
        (&named, device(1, Some("data2")), false),
        (&b, grown(&b), false),
        (&b, at(&spare, &b), false),
        // The UUID is proof wherever the disk is, and however it has grown.
        (&ours, grown(&ours), true),
        (&ours, at(&spare, &ours), true),
        (&b, carrying(&at(&spare, &b), &luks_uuid("data")), true),
        (&b, carrying(&at(&spare, &b), &fs_uuid("other")), false),
        // An ephemeral disk is blank again.
        (&ours, b.clone(), true),
    ] {
        let mut vm = Vm::with(&[a.clone(), then.clone()]);
        vm.wanted = vec![positional("data", 1)];
        let now = again(&now, 9);
        let late = vm.run("2", Earlier, &[again(&a, 8), now.clone()]);
        assert_eq!(late.is_empty(), known, "{then:?} {now:?}");
        // The answer does not change later.
        assert_eq!(vm.run("2", Earlier, &[again(&a, 8), now.clone()]), late);
        assert_eq!(vm.run("3", Earlier, &[a.clone(), now]), late);
    }
}

#[test]
fn disk_is_the_same_within_a_boot_by_its_sequence_number() {
    let b = device(1, None);
    let grown = changed(&b, |id| id.size = 2 * GIB);
    let old = |device: &Device| changed(device, |id| id.diskseq = None);
    for (then, now, known) in [
        (b.clone(), grown.clone(), true),
        (b.clone(), changed(&grown, |id| id.name = "vdx".to_owned()), true),
        (b.clone(), again(&b, 9), false),
        // A kernel without sequence numbers.
        (old(&b), old(&b), true),
        (old(&b), old(&grown), true),
        (old(&grown), old(&b), false),
        (old(&b), old(&device(1, Some("x"))), false),
        (old(&b), old(&device(2, None)), false),
    ] {
        let mut vm = Vm::with(std::slice::from_ref(&then));
        let late = vm.run("1", Earlier, std::slice::from_ref(&now));
        assert_eq!(late.is_empty(), known, "{then:?} {now:?}");
    }
}

#[test]
fn volume_at_the_address_of_an_absent_disk_is_not_that_disk() {
    let [a, b] = [device(0, None), device(1, None)];
    let volume = again(&b, 9);
    // Removed and replaced while the VM runs.
    let mut vm = Vm::with(&[a.clone(), b.clone()]);
    assert_eq!(vm.run("1", Earlier, &[a.clone(), volume.clone()]), ["vdb"]);
    assert_eq!(vm.run("2", Earlier, &[a.clone(), volume.clone()]), ["vdb"]);
    // Removed, and a volume comes with the next boot.
    let mut vm = Vm::with(&[a.clone(), b.clone()]);
    assert!(vm.run("1", Earlier, std::slice::from_ref(&a)).is_empty());
    assert_eq!(vm.run("2", Earlier, &[a.clone(), volume.clone()]), ["vdb"]);
    // Removed while the VM was off, and a volume comes after kubelet.
    let mut vm = Vm::with(&[a.clone(), b.clone()]);
    assert!(vm.run("2", Earlier, std::slice::from_ref(&a)).is_empty());
    assert!(vm.run("2", Runs, std::slice::from_ref(&a)).is_empty());
    // Also while kubelet starts again.
    assert_eq!(vm.run("2", Earlier, &[a.clone(), volume.clone()]), ["vdb"]);
    assert_eq!(vm.run("3", Earlier, &[a.clone(), volume]), ["vdb"]);
    // A disk that is slow in one boot is known in the next.
    let mut vm = Vm::with(&[a.clone(), b.clone()]);
    assert!(vm.run("2", Earlier, std::slice::from_ref(&a)).is_empty());
    assert!(vm.run("3", Earlier, &[a.clone(), b.clone()]).is_empty());
    // And in the same boot before kubelet runs.
    assert!(vm.run("4", Earlier, std::slice::from_ref(&a)).is_empty());
    assert!(vm.run("4", Earlier, &[a, b]).is_empty());
}

#[test]
fn unusable_journal_marks_no_disk_and_keeps_the_list() {
    let [a, b] = [device(0, None), device(1, None)];
    let mut vm = Vm::with(std::slice::from_ref(&a));
    let list = vm.journal.known_disks.clone();
    vm.journal.broken = vec![(String::new(), "it is on tmpfs".to_owned())];
    assert!(vm.run("1", Runs, &[a, b]).is_empty());
    assert_eq!(vm.journal.known_disks, list);
}

#[test]
fn addresses_that_a_boot_exchanges_do_not_exchange_disks() {
    let [a, volume] = [device(1, None), device(2, None)];
    let ours = carrying(&a, &fs_uuid("data"));
    let mut vm = Vm::with(std::slice::from_ref(&ours));
    vm.wanted = vec![positional("data", 1)];
    assert_eq!(vm.run("1", Earlier, &[ours.clone(), volume.clone()]), ["vdc"]);
    let moved = [at(&volume, &ours), at(&ours, &volume)];
    assert_eq!(vm.run("2", Earlier, &moved), ["vdc"]);
    // udev has not read the content of the disk yet: its UUID is kept.
    let unread = moved.clone().map(|device| Device {
        carried: Carried::Unknown,
        ..device
    });
    assert_eq!(vm.run("2", Earlier, &unread), ["vdc"]);
    assert_eq!(vm.run("3", Earlier, &[ours, volume]), ["vdc"]);
}

#[test]
fn copy_of_a_known_disk_is_another_disk() {
    let ours = carrying(&device(1, None), &fs_uuid("data"));
    let copy = carrying(&device(2, None), &fs_uuid("data"));
    let mut vm = Vm::with(std::slice::from_ref(&ours));
    vm.wanted = vec![positional("data", 1)];
    assert_eq!(vm.run("2", Earlier, &[ours.clone(), copy.clone()]), ["vdc"]);
    // Neither is at the address: the plan refuses both, because they have one UUID.
    let elsewhere = at(&device(5, None), &ours);
    assert!(vm.run("3", Earlier, &[elsewhere, copy.clone()]).is_empty());
    // The only one with the UUID is taken for the disk.
    let mut vm = Vm::with(std::slice::from_ref(&ours));
    vm.wanted = vec![positional("data", 1)];
    assert!(vm.run("2", Earlier, &[copy]).is_empty());
}

#[test]
fn approved_disk_is_known_from_then_on() {
    let [a, late] = [device(0, None), device(1, None)];
    let mut vm = Vm::with(std::slice::from_ref(&a));
    let both = [a.clone(), late.clone()];
    assert_eq!(vm.run("1", Earlier, &both), ["vdb"]);
    let list = vm.journal.known_disks.take().unwrap();
    vm.journal.known_disks = Some(list.with(&late, "1"));
    assert!(vm.run("1", Earlier, &both).is_empty());
    assert!(vm.run("2", Earlier, &both).is_empty());
    assert_eq!(vm.run("2", Earlier, &[a, again(&late, 9)]), ["vdb"]);
}

#[test]
fn address_has_no_number_that_a_boot_assigns() {
    let pci = "/sys/devices/pci0000:00/0000:00:02.1/0000:02:00.0";
    let below = "pci0000:00/0000:00:02.1/0000:02:00.0";
    for (path, name, expected) in [
        (
            format!("{pci}/virtio3/block/vdb"),
            "vdb",
            format!("{below}/virtio"),
        ),
        (
            format!("{pci}/virtio4/host6/target6:0:0/6:0:0:12/block/sdc"),
            "sdc",
            format!("{below}/virtio/0:0:12"),
        ),
        (
            format!("{pci}/ata2/host1/target1:0:0/1:0:0:0/block/sda"),
            "sda",
            format!("{below}/ata2/0:0:0"),
        ),
        (
            format!("{pci}/nvme/nvme1/nvme1n2"),
            "nvme1n2",
            format!("{below}/nvme/nvme/n2"),
        ),
        (
            "/sys/devices/platform/a003e00.virtio_mmio/virtio5/block/vda".to_owned(),
            "vda",
            "platform/a003e00.virtio_mmio/virtio".to_owned(),
        ),
        // iSCSI: nothing of the path lasts, so all of it counts.
        (
            "/sys/devices/platform/host3/session1/target3:0:0/3:0:0:1/block/sdb".to_owned(),
            "sdb",
            "platform/host3/session1/target3:0:0/3:0:0:1/block/sdb".to_owned(),
        ),
        (
            "/sys/devices/virtual/block/loop7".to_owned(),
            "loop7",
            "virtual/block/loop7".to_owned(),
        ),
        (String::new(), "vdb", String::new()),
    ] {
        let device = Device {
            syspath: path.clone(),
            ..changed(&device(1, None), |id| id.name = name.to_owned())
        };
        assert_eq!(address(&device), expected, "{path}");
    }
}

/// An event in the life of a VM.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A volume is plugged in at the lowest free address, with a serial or without.
    Plug(bool),
    /// The n-th plugged volume is unplugged.
    Unplug(usize),
    /// The next boot, which may reverse the addresses of the volumes.
    Reboot(bool),
    /// A run of the agent.
    Run,
}

proptest! {
    /// Whatever is plugged in and removed, disks of the spec stay known and volumes stay late, with
    /// and without sequence numbers.
    #[test]
    fn volumes_never_become_known(
        events in prop::collection::vec(prop_oneof![
            3 => any::<bool>().prop_map(Event::Plug),
            2 => (0_usize..4).prop_map(Event::Unplug),
            1 => any::<bool>().prop_map(Event::Reboot),
            4 => Just(Event::Run),
        ], 0..40),
        has_diskseq in any::<bool>(),
    ) {
        let place = |n: usize| device(u8::try_from(n).unwrap(), None);
        let mut spec = [place(0), place(1)];
        let mut volumes: Vec<(usize, Device)> = Vec::new();
        let (mut boot, mut seq) = (1, 100);
        let numbered = |device: &Device, seq: &mut u64| {
            *seq += 1;
            changed(device, |id| id.diskseq = has_diskseq.then_some(*seq))
        };
        spec = spec.map(|device| numbered(&device, &mut seq));
        let mut vm = Vm::with(&spec);
        for event in events {
            match event {
                Event::Plug(named) => {
                    let free = (2..12).find(|n| volumes.iter().all(|(at, _)| at != n));
                    if let Some(free) = free {
                        let volume = device(u8::try_from(free).unwrap(), named.then_some("volume"));
                        volumes.push((free, numbered(&volume, &mut seq)));
                    }
                }
                Event::Unplug(n) if n < volumes.len() => drop(volumes.remove(n)),
                Event::Unplug(_) => {}
                Event::Reboot(reversed) => {
                    boot += 1;
                    spec = spec.map(|device| numbered(&device, &mut seq));
                    if reversed {
                        volumes.reverse();
                    }
                    for (n, (address, volume)) in volumes.iter_mut().enumerate() {
                        *address = n + 2;
                        let serial = volume.id.serial.clone();
                        *volume = numbered(&device(u8::try_from(n + 2).unwrap(), serial.as_deref()), &mut seq);
                    }
                }
                Event::Run => {}
            }
            if matches!(event, Event::Run) {
                let devices: Vec<Device> =
                    spec.iter().chain(volumes.iter().map(|(_, volume)| volume)).cloned().collect();
                let late = vm.run(&boot.to_string(), Earlier, &devices);
                let expected: Vec<String> =
                    volumes.iter().map(|(_, volume)| volume.id.name.clone()).collect();
                prop_assert_eq!(late, expected);
            }
        }
    }
}
