use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use nix::{errno::Errno, sys::stat::Mode, unistd::mkfifo};
use proptest::{prelude::*, test_runner::FileFailurePersistence};
use virtfleet_agent_core::virtio::{Channels, Coalescing, Machine, Rings};
use virtfleet_agent_host::{NicCalls, QueueCounters, virtio::observe};
use virtfleet_tests::{
    roots::virtio::{Disk, FakeNics, Kernel, Nic, Other, Tree},
    scratch,
};

/// What is done to a file.
#[derive(Debug, Clone)]
enum Harm {
    Removed,
    Emptied,
    Cut(prop::sample::Index),
    Filled(Vec<u8>),
    Long,
    Folder,
    Fifo,
    Loop,
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        Just(Harm::Removed),
        Just(Harm::Emptied),
        any::<prop::sample::Index>().prop_map(Harm::Cut),
        proptest::collection::vec(any::<u8>(), 0..80).prop_map(Harm::Filled),
        "[0-9a-fx,\\-: \n]{1,40}".prop_map(|text| Harm::Filled(text.into_bytes())),
        Just(Harm::Long),
        Just(Harm::Folder),
        Just(Harm::Fifo),
        Just(Harm::Loop),
    ]
}

fn hurt(path: &Path, harm: &Harm) {
    let was = fs::symlink_metadata(path);
    let text = match &was {
        Ok(found) if found.is_dir() => {
            fs::remove_dir_all(path).unwrap();
            Vec::new()
        }
        Ok(found) => {
            // A FIFO of an earlier harm would make us wait.
            let text = if found.is_file() {
                fs::read(path).unwrap()
            } else {
                Vec::new()
            };
            fs::remove_file(path).unwrap();
            text
        }
        // Another harm took a folder above it.
        Err(_) => return,
    };
    match harm {
        Harm::Removed => {}
        Harm::Emptied => fs::write(path, "").unwrap(),
        Harm::Cut(at) => fs::write(path, &text[..at.index(text.len() + 1)]).unwrap(),
        Harm::Filled(bytes) => fs::write(path, bytes).unwrap(),
        Harm::Long => fs::write(path, vec![b'1'; 10_000]).unwrap(),
        Harm::Folder => fs::create_dir(path).unwrap(),
        Harm::Fifo => mkfifo(path, Mode::from_bits_truncate(0o600)).unwrap(),
        Harm::Loop => symlink(path, path).unwrap(),
    }
}

/// Every file, link and folder below, in order.
fn everything(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    for path in entries {
        if fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
            everything(&path, found);
        }
        found.push(path);
    }
}

fn tree(kernel: Kernel) -> Tree {
    Tree {
        kernel,
        cpus: 3,
        nics: vec![Nic::pairs(2, 2), Nic::default(), Nic::emulated("e1000")],
        disks: vec![Disk::default(), Disk::scsi(2), Disk::nvme(1)],
        others: vec![Other::balloon(), Other::rng()],
        ..Tree::default()
    }
}

/// What was seen at other addresses than that one.
fn without(mut machine: Machine, address: &str) -> Machine {
    machine.devices.retain(|device| device.address != address);
    machine
        .nics
        .retain(|nic| nic.address != address && !nic.address.is_empty());
    machine
        .disks
        .retain(|disk| disk.address != address && !disk.address.is_empty());
    machine.vectors.by_device.retain(|one| one.0 != address);
    machine.vectors.used = 0;
    machine.unread.clear();
    machine
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn nothing_that_a_tree_holds_is_the_end(
        kernel in prop::sample::select(&Kernel::ALL[..]),
        harms in proptest::collection::vec((any::<prop::sample::Index>(), harm()), 1..12),
    ) {
        let folder = scratch::folder().unwrap();
        let guest = tree(kernel).write(folder.path()).unwrap();
        let mut all = Vec::new();
        everything(folder.path(), &mut all);
        for (at, harm) in &harms {
            hurt(&all[at.index(all.len())], harm);
        }
        let machine = observe(&guest.roots, &guest.nics, true);
        prop_assert!(machine.unread.len() <= 257);
        serde_json::to_string(&machine).unwrap();
    }

    #[test]
    fn a_broken_device_hides_no_other(
        kernel in prop::sample::select(&Kernel::ALL[..]),
        slot in 1..9_u32,
        harms in proptest::collection::vec((any::<prop::sample::Index>(), harm()), 1..12),
    ) {
        let folder = scratch::folder().unwrap();
        let guest = tree(kernel).write(folder.path()).unwrap();
        let address = format!("0000:00:{slot:02x}.0");
        let whole = without(observe(&guest.roots, &guest.nics, true), &address);
        prop_assert_eq!(whole.devices.len(), if matches!(slot, 3 | 6) { 6 } else { 5 });
        let device = guest.roots.sys(format!("devices/pci0000:00/{address}"));
        let mut all = Vec::new();
        everything(&device, &mut all);
        for (at, harm) in &harms {
            hurt(&all[at.index(all.len())], harm);
        }
        let broken = without(observe(&guest.roots, &guest.nics, true), &address);
        prop_assert_eq!(broken, whole);
    }
}

/// Drivers one of whose interfaces goes away when it is asked.
struct Going<'a> {
    nics: &'a FakeNics,
    name: &'static str,
    folder: PathBuf,
}

impl Going<'_> {
    fn asked(&self, nic: &str) -> Result<(), Errno> {
        if nic != self.name {
            return Ok(());
        }
        let _gone = fs::remove_file(self.folder.join(nic));
        Err(Errno::ENODEV)
    }
}

impl NicCalls for Going<'_> {
    fn channels(&self, nic: &str) -> Result<Option<Channels>, Errno> {
        self.nics.channels(nic)
    }
    fn set_channels(&self, _: &str, _: u32) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }
    fn rings(&self, nic: &str) -> Result<Option<Rings>, Errno> {
        self.asked(nic)?;
        self.nics.rings(nic)
    }
    fn set_rings(&self, _: &str, _: u32, _: u32) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }
    fn coalescing(&self, nic: &str) -> Result<Option<Coalescing>, Errno> {
        assert_ne!(nic, self.name, "it is gone, and was asked again");
        self.nics.coalescing(nic)
    }
    fn statistics(&self, nic: &str) -> Result<Vec<(String, u64)>, Errno> {
        self.nics.statistics(nic)
    }
    fn queue_counters(&self, index: u32) -> Result<Option<Vec<QueueCounters>>, Errno> {
        self.nics.queue_counters(index)
    }
}

#[test]
fn an_interface_that_goes_while_it_is_read_is_left_out() {
    let folder = scratch::folder().unwrap();
    let guest = tree(Kernel::V6_12).write(folder.path()).unwrap();
    let going = Going {
        nics: &guest.nics,
        name: "eth1",
        folder: guest.roots.sys("class/net"),
    };
    let machine = observe(&guest.roots, &going, false);
    let names: Vec<_> = machine.nics.iter().map(|nic| nic.name.as_str()).collect();
    assert_eq!(names, ["eth0", "eth2"]);
    assert_eq!(machine.unread, []);
    assert!(machine.nics.iter().all(|nic| nic.coalescing.is_some()));
}

#[test]
fn devices_that_come_and_go_disturb_no_other() {
    let folder = scratch::folder().unwrap();
    let guest = tree(Kernel::V6_18).write(folder.path()).unwrap();
    let address = "0000:00:01.0";
    let whole = without(observe(&guest.roots, &guest.nics, true), address);
    let pci = guest.roots.sys(format!("devices/pci0000:00/{address}"));
    let links = ["bus/virtio/devices/virtio0", "class/net/eth0"].map(|link| guest.roots.sys(link));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let toggling = scope.spawn(|| {
            let away = folder.path().join("away");
            let targets = links.each_ref().map(|link| fs::read_link(link).unwrap());
            let mut turns = 0;
            while !stop.load(Ordering::Relaxed) || turns == 0 {
                for link in &links {
                    fs::remove_file(link).unwrap();
                }
                fs::rename(&pci, &away).unwrap();
                fs::rename(&away, &pci).unwrap();
                for (link, target) in links.iter().zip(&targets) {
                    symlink(target, link).unwrap();
                }
                turns += 1;
            }
            turns
        });
        for _ in 0..200 {
            let machine = observe(&guest.roots, &guest.nics, true);
            assert!(matches!(machine.devices.len(), 5 | 6), "{:?}", machine.devices);
            // A name may be read while its folder is away.
            let empty = |address: &str| address.is_empty();
            let mut machine = without(machine, address);
            machine.devices.retain(|device| !empty(&device.address));
            assert_eq!(machine, whole);
        }
        stop.store(true, Ordering::Relaxed);
        assert!(toggling.join().unwrap() > 0);
    });
}
