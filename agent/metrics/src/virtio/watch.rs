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
    /// The last state with all interrupts, if a later inspection lacked some.
    complete: Machine,
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
            complete: Machine::default(),
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
        let had_all = self.all_interrupts().is_ok();
        let before = std::mem::replace(
            &mut self.machine,
            (self.observe)(&self.roots, &*self.calls, false),
        );
        keep_offline_counts(&before, &mut self.machine);
        if !had_all {
            // An interrupt with a malformed line was not in the state before.
            keep_offline_counts(&self.complete, &mut self.machine);
        } else if self.all_interrupts().is_err() {
            self.complete = before;
        }
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
mod tests;
