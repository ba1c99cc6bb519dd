//! The virtio devices, cached between scrapes: counters, interrupts, channels and status bytes are
//! read at each scrape because they change. The rest is read again after devices, disks, CPUs or
//! channels have changed, once a minute, and once malformed interrupts are whole again.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use virtfleet_agent_core::{
    procfs::interrupts::table,
    virtio::{
        Counters, Machine, Nic,
        counters::{self, ByQueue},
    },
};
use virtfleet_agent_host::Errno;
use virtfleet_agent_host::{
    Attribute, AttributeBuffer, Devices, NicCalls, Reread, Roots, attribute_buffer,
    virtio::MAX_INTERRUPTS_BYTES,
};

use crate::CollectError;

/// Maximum age of the cached data.
const MAX_AGE: Duration = Duration::from_mins(1);
/// Directories below the root of sysfs in which devices and disks appear. Network interfaces are
/// not included: those with a device appear together with it, and nodes have many without one.
const WATCHED_DIRECTORIES: [&str; 3] = ["bus/virtio/devices", "bus/pci/devices", "block"];

/// Inspects all devices; the last argument also requests what only root can read.
pub(super) type Observe = fn(&Roots, &dyn NicCalls, bool) -> Machine;

pub(super) struct Watch {
    roots: Roots,
    calls: Arc<dyn NicCalls>,
    observe: Observe,
    places: [Devices<()>; 3],
    online: Reread,
    interrupts: Reread,
    buffer: Box<AttributeBuffer>,
    counts: Vec<u64>,
    machine: Machine,
    cached: Option<Cached>,
}

/// Data about the cached state.
struct Cached {
    at: Instant,
    online: Vec<u8>,
    /// Status byte of each device.
    status: Vec<Attribute>,
    /// Whether the interrupts were not all known.
    lacks_interrupts: bool,
    /// By interrupt number: index of the device and of its vector. An interrupt may be shared.
    vectors: HashMap<u32, Vec<(usize, usize)>>,
}

/// The cached data is outdated.
struct Outdated;

impl Watch {
    /// Does not read anything before the first [`Watch::machine`].
    pub(super) fn new(roots: &Roots, calls: &Arc<dyn NicCalls>, observe: Observe) -> Self {
        Self {
            places: WATCHED_DIRECTORIES.map(|place| Devices::new(roots.sys(place))),
            online: Reread::new(roots.sys("devices/system/cpu/online")),
            interrupts: Reread::with_limit(roots.proc("interrupts"), MAX_INTERRUPTS_BYTES),
            buffer: attribute_buffer(),
            counts: Vec::new(),
            machine: Machine::default(),
            cached: None,
            roots: roots.clone(),
            calls: Arc::clone(calls),
            observe,
        }
    }

    /// The current state, and whether every interrupt is in it: an error names the file if it is
    /// unreadable or has a malformed line.
    pub(super) fn machine(&mut self) -> (&mut Machine, Result<(), CollectError>) {
        // All directories are refreshed, so that none reports an old change later.
        let mut changed = false;
        for place in &mut self.places {
            // A missing directory has no changes.
            changed |= place.refresh(|_| true, |_, _| ()).unwrap_or(false);
        }
        // If this is unreadable, new CPUs are not detected.
        let online = self.online.read().unwrap_or_default().to_vec();
        let fresh = self
            .cached
            .as_ref()
            .is_some_and(|cached| !changed && cached.at.elapsed() < MAX_AGE && cached.online == online);
        if !fresh || self.refresh().is_err() {
            self.inspect(online);
        }
        let interrupts = self.all_interrupts();
        (&mut self.machine, interrupts)
    }

    fn inspect(&mut self, online: Vec<u8>) {
        let before = std::mem::replace(
            &mut self.machine,
            (self.observe)(&self.roots, &*self.calls, false),
        );
        keep_offline_counts(&before, &mut self.machine);
        let devices = self.roots.sys(WATCHED_DIRECTORIES[0]);
        let mut vectors: HashMap<u32, Vec<(usize, usize)>> = HashMap::new();
        for (index, device) in self.machine.devices.iter().enumerate() {
            for (at, vector) in device.vectors.iter().enumerate() {
                vectors.entry(vector.irq).or_default().push((index, at));
            }
        }
        self.cached = Some(Cached {
            at: Instant::now(),
            online,
            status: self
                .machine
                .devices
                .iter()
                .map(|device| Attribute::new(devices.join(&device.name).join("status")))
                .collect(),
            lacks_interrupts: self.all_interrupts().is_err(),
            vectors,
        });
    }

    fn all_interrupts(&self) -> Result<(), CollectError> {
        let path = self.interrupts.path().display().to_string();
        let mut unread = self.machine.unread.iter();
        unread
            .find(|unread| unread.what == path)
            .map_or(Ok(()), |unread| {
                Err(CollectError::failed(format!("{path}: {}", unread.because)))
            })
    }

    /// Reads the values that change.
    fn refresh(&mut self) -> Result<(), Outdated> {
        let cached = self.cached.as_mut().ok_or(Outdated)?;
        for (device, status) in self.machine.devices.iter_mut().zip(&mut cached.status) {
            let text = status.read(&mut self.buffer).ok();
            device.status = text.and_then(|text| byte(&text));
        }
        if cached.lacks_interrupts {
            if is_whole(&mut self.interrupts, &mut self.counts) {
                return Err(Outdated);
            }
        } else if !cached.vectors.is_empty() {
            let text = self.interrupts.text().map_err(|_| Outdated)?;
            let table = table(&text).map_err(|_| Outdated)?;
            let devices = &mut self.machine.devices;
            let (mut rows, mut others) = (0, false);
            let mut bad = false;
            table.rows(
                &mut self.counts,
                |_| bad = true,
                |interrupt, counts| {
                    let places = interrupt
                        .name
                        .parse()
                        .ok()
                        .and_then(|irq| cached.vectors.get(&irq));
                    let Some(places) = places else { return };
                    rows += 1;
                    for (device, vector) in places {
                        let vector = &mut devices[*device].vectors[*vector];
                        // The number may have been reused.
                        if !interrupt
                            .handlers()
                            .split(',')
                            .any(|name| name.trim() == vector.name)
                        {
                            others = true;
                            return;
                        }
                        // Counts of offline CPUs, which have no column, are kept.
                        let landed = &mut vector.landed;
                        landed.retain(|one| table.cpus.binary_search(&one.0).is_err());
                        let by_cpu = table.cpus.iter().copied().zip(counts.iter().copied());
                        landed.extend(by_cpu.filter(|(_, count)| *count > 0));
                        landed.sort_unstable();
                    }
                },
            );
            if bad || others || rows != cached.vectors.len() {
                return Err(Outdated);
            }
        }
        for nic in &mut self.machine.nics {
            count(nic, &*self.calls)?;
        }
        Ok(())
    }
}

/// Whether the file of interrupts has no malformed line.
fn is_whole(file: &mut Reread, counts: &mut Vec<u64>) -> bool {
    let Ok(text) = file.text() else { return false };
    let Ok(table) = table(&text) else { return false };
    let mut whole = true;
    table.rows(counts, |_| whole = false, |_, _| ());
    whole
}

/// Keeps the counts of CPUs that are offline now, if the kernel does not report them: a counter
/// must not decrease.
fn keep_offline_counts(before: &Machine, now: &mut Machine) {
    let online = &now.cpus.online;
    if online.is_empty() {
        return;
    }
    for device in &mut now.devices {
        let Some(old) = before.devices.iter().find(|old| old.name == device.name) else {
            continue;
        };
        for vector in &mut device.vectors {
            let same = old.vector(vector.irq).filter(|old| old.name == vector.name);
            let gone = same.into_iter().flat_map(|old| &old.landed);
            for one in gone.filter(|one| !online.contains(&one.0)) {
                if vector.landed.iter().all(|known| known.0 != one.0) {
                    vector.landed.push(*one);
                }
            }
            vector.landed.sort_unstable();
        }
    }
}

/// Reads the current counters of an interface's queues.
///
/// # Errors
/// The interface is gone, or has a different number of queues.
fn count(nic: &mut Nic, calls: &dyn NicCalls) -> Result<(), Outdated> {
    let gone = |errno: Errno| errno == Errno::ENODEV;
    match calls.channels(&nic.name) {
        Ok(channels) if channels == nic.channels => {}
        Err(errno) if !gone(errno) => {}
        _ => return Err(Outdated),
    }
    let mut all = match calls.statistics(&nic.name) {
        Ok(all) => counters::of_statistics(&all),
        Err(errno) if gone(errno) => return Err(Outdated),
        Err(_) => ByQueue::new(),
    };
    match calls.queue_counters(nic.index) {
        Ok(queues) => {
            let queues = queues.into_iter().flatten();
            counters::merge(
                &mut all,
                queues.map(|queue| ((queue.direction, queue.index), queue.counters)),
            );
        }
        Err(errno) if gone(errno) => return Err(Outdated),
        Err(_) => {}
    }
    for queue in &mut nic.queues {
        let now = all.get(&(queue.direction, queue.index)).copied();
        let now = now.unwrap_or_default();
        queue.counters = Counters {
            // For drivers that do not count them, they are in sysfs, which is read with the rest.
            // Other unavailable values are not taken from the previous scrape.
            timeouts: now.timeouts.or(queue.counters.timeouts),
            ..now
        };
    }
    Ok(())
}

/// Parses a number that sysfs prints with `0x`.
fn byte(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Mutex};

    use virtfleet_agent_core::virtio::{Channels, Coalescing, Device, Direction, NicQueue, Rings, Vector};
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
}
