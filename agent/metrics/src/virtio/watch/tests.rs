use std::{fs, sync::Mutex};

use virtfleet_agent_core::virtio::{
    Channels, Coalescing, Device, Direction, NicQueue, Rings, Unread, Vector,
};
use virtfleet_agent_host::QueueCounters;

use super::*;

/// Number of inspections, channels, and a counter.
#[derive(Default)]
struct Fake(Mutex<(u32, u32, u64)>);

impl NicCalls for Fake {
    fn channels(&self, nic: &str) -> Result<Option<Channels>, Errno> {
        let current = self.0.lock().unwrap().1;
        match (nic, current) {
            ("eth0", 0) => Err(Errno::ENODEV),
            ("eth0", 99) => Err(Errno::EBUSY),
            ("eth0", current) => Ok(Some(Channels { current, possible: 4 })),
            _ => Ok(None),
        }
    }
    fn set_channels(&self, _: &str, _: u32) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }
    fn rings(&self, _: &str) -> Result<Option<Rings>, Errno> {
        // Called only by `observe`.
        self.0.lock().unwrap().0 += 1;
        Ok(None)
    }
    fn set_rings(&self, _: &str, _: u32, _: u32) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }
    fn coalescing(&self, _: &str) -> Result<Option<Coalescing>, Errno> {
        Ok(None)
    }
    fn statistics(&self, _: &str) -> Result<Vec<(String, u64)>, Errno> {
        Ok(vec![("rx0_kicks".to_owned(), self.0.lock().unwrap().2)])
    }
    fn queue_counters(&self, _: u32) -> Result<Option<Vec<QueueCounters>>, Errno> {
        Ok(Some(vec![QueueCounters {
            direction: Direction::Receive,
            index: 0,
            counters: Counters {
                packets: Some(7),
                ..Counters::default()
            },
        }]))
    }
}

fn observe(_: &Roots, calls: &dyn NicCalls, _: bool) -> Machine {
    assert_eq!(calls.rings("eth0"), Ok(None));
    Machine {
        devices: vec![Device {
            name: "virtio0".to_owned(),
            vectors: vec![Vector {
                irq: 25,
                name: "virtio0-input.0".to_owned(),
                ..Vector::default()
            }],
            ..Device::default()
        }],
        nics: vec![Nic {
            name: "eth0".to_owned(),
            channels: calls.channels("eth0").ok().flatten(),
            queues: vec![NicQueue {
                counters: Counters {
                    timeouts: Some(3),
                    drops: Some(4),
                    ..Counters::default()
                },
                ..NicQueue::default()
            }],
            ..Nic::default()
        }],
        ..Machine::default()
    }
}

#[test]
fn changing_values_are_read_and_the_rest_is_cached() {
    let dir = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let row = " 25: 5 0 PCI-MSIX-0000:00:02.0 1-edge virtio0-input.0\n";
    put(
        "proc/interrupts",
        &format!("     CPU0 CPU3\n{row}NMI: 0 0 Non-maskable\n"),
    );
    put("sys/bus/virtio/devices/virtio0/status", "0x0000000f\n");
    put("sys/devices/system/cpu/online", "0,3\n");
    let roots = Roots {
        procfs: dir.path().join("proc"),
        sysfs: dir.path().join("sys"),
        ..Roots::default()
    };
    let fake = Arc::new(Fake::default());
    let set = |channels, kicks| {
        let mut now = fake.0.lock().unwrap();
        (now.1, now.2) = (channels, kicks);
    };
    set(2, 1);
    let calls: Arc<dyn NicCalls> = fake.clone();
    let mut watch = Watch::new(&roots, &calls, observe);
    let inspections = || fake.0.lock().unwrap().0;
    assert_eq!(watch.machine().0.devices.len(), 1);
    assert_eq!(inspections(), 1);

    set(2, 50);
    let (machine, _) = watch.machine();
    assert_eq!(machine.devices[0].status, Some(15));
    assert_eq!(machine.devices[0].vectors[0].landed, [(0, 5)]);
    let counters = machine.nics[0].queues[0].counters;
    assert_eq!((counters.kicks, counters.packets), (Some(50), Some(7)));
    assert_eq!((counters.timeouts, counters.drops), (Some(3), None));
    assert_eq!(inspections(), 1);

    put("sys/bus/virtio/devices/virtio0/status", "0x0000004f\n");
    assert_eq!(watch.machine().0.devices[0].status, Some(0x4f));
    // The driver is busy: no change is detected.
    set(99, 50);
    watch.machine().1.unwrap();
    assert_eq!(inspections(), 1);

    set(3, 50);
    assert_eq!(watch.machine().0.nics[0].channels.unwrap().current, 3);
    assert_eq!(inspections(), 2, "changed channels");
    set(0, 50);
    watch.machine().1.unwrap();
    assert_eq!(inspections(), 3, "a removed interface");
    set(3, 50);
    watch.machine().1.unwrap();
    put("sys/devices/system/cpu/online", "0-3\n");
    let before = inspections();
    watch.machine().1.unwrap();
    assert_eq!(inspections(), before + 1, "a new CPU");
    put("sys/block/vda/size", "8\n");
    watch.machine().1.unwrap();
    put("sys/block/vdb/size", "8\n");
    watch.machine().1.unwrap();
    assert_eq!(inspections(), before + 3, "new disks");
    watch.machine().1.unwrap();
    assert_eq!(inspections(), before + 3);
    if let Some(cached) = &mut watch.cached {
        cached.at -= MAX_AGE;
    }
    watch.machine().1.unwrap();
    assert_eq!(inspections(), before + 4, "a minute has passed");
    put("proc/interrupts", "what is this\n");
    watch.machine().1.unwrap();
    assert_eq!(inspections(), before + 5, "unreadable interrupts");
    put("proc/interrupts", "     CPU0\n 26: 5 PCI-MSI virtio0-input.0\n");
    watch.machine().1.unwrap();
    assert_eq!(inspections(), before + 6, "a removed interrupt");
    put("proc/interrupts", "     CPU0\n 25: 5 PCI-MSI virtio0-output.0\n");
    watch.machine().1.unwrap();
    assert_eq!(inspections(), before + 7, "a reused interrupt number");
}

/// The file `step` says which state the guest has.
fn observe_step(roots: &Roots, _: &dyn NicCalls, _: bool) -> Machine {
    let step = fs::read_to_string(roots.sys("step")).unwrap();
    let (online, landed) = match &*step {
        "two CPUs" => (vec![0, 1], Some(vec![(0, 10), (1, 20)])),
        "a malformed row" => (vec![0], None),
        _ => (vec![0], Some(vec![(0, 11)])),
    };
    let mut machine = Machine::default();
    machine.cpus.online = online;
    if landed.is_none() {
        machine.unread = vec![Unread {
            what: roots.proc("interrupts").display().to_string(),
            because: "line 2".to_owned(),
        }];
    }
    let vector = landed.map(|landed| Vector {
        irq: 25,
        name: "virtio0-input.0".to_owned(),
        landed,
        ..Vector::default()
    });
    machine.devices = vec![Device {
        name: "virtio0".to_owned(),
        vectors: vector.into_iter().collect(),
        ..Device::default()
    }];
    machine
}

#[test]
fn counts_do_not_decrease_after_a_malformed_row() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots {
        procfs: dir.path().join("proc"),
        sysfs: dir.path().to_owned(),
        ..Roots::default()
    };
    let calls: Arc<dyn NicCalls> = Arc::new(Fake::default());
    let mut watch = Watch::new(&roots, &calls, observe_step);
    for step in ["two CPUs", "a malformed row", "a malformed row", "one CPU"] {
        fs::write(dir.path().join("step"), step).unwrap();
        watch.inspect(Vec::new());
    }
    assert_eq!(watch.machine.devices[0].vectors[0].landed, [(0, 11), (1, 20)]);
}

#[test]
fn counts_do_not_decrease_when_a_cpu_goes_offline() {
    let machine = |online: &[u32], landed: &[(u32, u64)], name: &str| {
        let vector = Vector {
            irq: 25,
            name: name.to_owned(),
            landed: landed.to_vec(),
            ..Vector::default()
        };
        let mut machine = Machine {
            devices: vec![Device {
                name: "virtio0".to_owned(),
                vectors: vec![vector],
                ..Device::default()
            }],
            ..Machine::default()
        };
        machine.cpus.online = online.to_vec();
        machine
    };
    let before = machine(&[0, 1], &[(0, 10), (1, 20)], "virtio0-input.0");
    let carried = |mut now: Machine| {
        keep_offline_counts(&before, &mut now);
        now.devices.remove(0).vectors.remove(0).landed
    };
    let gone = machine(&[0], &[(0, 11)], "virtio0-input.0");
    assert_eq!(carried(gone.clone()), [(0, 11), (1, 20)]);
    let reported = machine(&[0], &[(0, 11), (1, 21)], "virtio0-input.0");
    assert_eq!(
        carried(reported),
        [(0, 11), (1, 21)],
        "the kernel's counts have precedence"
    );
    let replaced = machine(&[0, 1], &[(0, 11)], "virtio0-input.0");
    assert_eq!(carried(replaced), [(0, 11)]);
    let other = machine(&[0], &[(0, 11)], "virtio0-output.0");
    assert_eq!(carried(other), [(0, 11)]);
}
