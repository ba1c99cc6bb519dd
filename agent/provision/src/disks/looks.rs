//! Looks at disks, several at a time, so that one that is slow or does not answer holds up no other.
//!
//! ```text
//! want ─▶ queue ─▶ a thread each, PROBES_AT_ONCE at a time ─▶ done     (a thread that takes longer than PATIENCE gives its turn to the next, and goes on)
//! ```
//!
//! Each device is read by one thread, however often it is asked for. How long a look may take at all, the host decides.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{Builder, Scope},
    time::{Duration, Instant},
};

use virtfleet_agent_core::disks::{
    Content, Device, DeviceId, Doubt, Left, Probe, Wanted,
    journal::{Entry, Journal, Progress},
    mkfs, size,
    wanted::{Encryption, KeySource},
};

use virtfleet_agent_host::disks::{
    Disks, Limits,
    tools::{check, luks, superblock},
};
use virtfleet_wire::settings::ProofKind;

use crate::engine::error_chain;

/// How many looks that answer are under way at a time.
pub(super) const PROBES_AT_ONCE: usize = 4;
/// How long a look takes at the most of a disk that is well: 100 MiB, and the tools.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often it is logged how far a probe is.
pub(super) const PROGRESS: Duration = Duration::from_secs(5);

/// A container, as blkid names it.
const LUKS: &str = "crypto_LUKS";

/// How long is waited for those that take longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Until the others are done.
    Short,
    /// To their end.
    Full,
}

/// A look that is to be taken.
struct Order {
    wanted: Wanted,
    device: Device,
    entry: Option<Entry>,
    /// Where an earlier probe has found data.
    place: Option<u64>,
}

/// Looks under way, and what those that have ended have seen.
pub(super) struct Looks<'s, 'e> {
    scope: &'s Scope<'s, 'e>,
    disks: Disks<'e>,
    queue: VecDeque<Order>,
    /// By the disk's name: the device, and since when.
    running: BTreeMap<String, (DeviceId, Instant)>,
    done: BTreeMap<String, (DeviceId, Probe)>,
    say: Sender<(String, DeviceId, Probe)>,
    hear: Receiver<(String, DeviceId, Probe)>,
}

impl<'s, 'e> Looks<'s, 'e> {
    pub(super) fn new(scope: &'s Scope<'s, 'e>, disks: Disks<'e>) -> Self {
        let (say, hear) = channel();
        Self {
            scope,
            disks,
            queue: VecDeque::new(),
            running: BTreeMap::new(),
            done: BTreeMap::new(),
            say,
            hear,
        }
    }

    /// Has a disk looked at, unless that is under way. What an earlier look has seen is forgotten.
    pub(super) fn want(&mut self, wanted: &Wanted, device: &Device, journal: &Journal) {
        let name = &wanted.name;
        let seen = self.done.get(name).map(|(id, _)| id);
        let queued = self.queue.iter().find(|order| order.wanted.name == *name);
        let running = self.running.get(name).map(|(id, _)| id);
        let known = [seen, queued.map(|order| &order.device.id), running];
        if known.into_iter().flatten().any(|id| *id == device.id) {
            return;
        }
        self.done.remove(name);
        self.queue.retain(|order| order.wanted.name != *name);
        self.queue.push_back(Order {
            wanted: wanted.clone(),
            device: device.clone(),
            entry: journal.entries.iter().find(|entry| entry.name == *name).cloned(),
            place: journal
                .found
                .iter()
                .find(|found| found.is_on(name, &device.id))
                .map(|found| found.offset),
        });
    }

    /// Waits for what is under way.
    pub(super) fn wait(&mut self, wait: Wait) {
        loop {
            let left: Vec<Duration> = self
                .running
                .values()
                .map(|(_, since)| PATIENCE.saturating_sub(since.elapsed()))
                .filter(|left| !left.is_zero())
                .collect();
            if left.len() < PROBES_AT_ONCE
                && let Some(order) = self.next()
            {
                self.start(order);
                continue;
            }
            let over = self.running.is_empty() || wait == Wait::Short && left.is_empty();
            // What is in the queue still waits for a disk that somebody reads.
            if over {
                return;
            }
            let next = left.into_iter().min().unwrap_or(Duration::from_hours(1));
            match self.hear.recv_timeout(next) {
                Ok((name, id, probe)) => {
                    // Of a device that another has replaced nobody wants to know any more.
                    if self.running.get(&name).is_some_and(|(running, _)| *running == id) {
                        self.running.remove(&name);
                        self.done.insert(name, (id, probe));
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    /// The first in the queue whose disk nobody reads: partitions of one disk wait for each other,
    /// because its lock is one.
    fn next(&mut self) -> Option<Order> {
        let read: BTreeSet<&str> = self.running.values().map(|(id, _)| id.disk()).collect();
        let free =
            |order: &Order| !read.contains(order.device.id.disk()) || order.device.id.partition.is_none();
        let at = self.queue.iter().position(free)?;
        self.queue.remove(at)
    }

    /// What was seen on that device; not known while the look is under way.
    pub(super) fn probe(&self, name: &str, id: &DeviceId) -> Probe {
        let seen = self.done.get(name).filter(|(seen, _)| seen == id);
        seen.map_or_else(
            || unknown("it has not answered yet".to_owned()),
            |(_, probe)| probe.clone(),
        )
    }

    /// The disks whose look is under way.
    pub(super) fn under_way(&self) -> BTreeSet<String> {
        let queued = self.queue.iter().map(|order| order.wanted.name.clone());
        self.running.keys().cloned().chain(queued).collect()
    }

    fn start(&mut self, order: Order) {
        let (name, id) = (order.wanted.name.clone(), order.device.id.clone());
        self.running.insert(name.clone(), (id.clone(), Instant::now()));
        let (disks, say) = (self.disks, self.say.clone());
        let (whose, which) = (name.clone(), id.clone());
        let work = move || {
            let probe = catch_unwind(AssertUnwindSafe(|| look(disks, &order)));
            let probe = probe.unwrap_or_else(|_| unknown("the look at it panicked".to_owned()));
            // When nobody listens any more, nobody needs it.
            drop(say.send((whose, which, probe)));
        };
        if let Err(error) = Builder::new()
            .name("disk-look".to_owned())
            .spawn_scoped(self.scope, work)
        {
            self.running.remove(&name);
            let probe = unknown(format!("cannot start a thread to look at it: {error}"));
            self.done.insert(name, (id, probe));
        }
    }
}

fn unknown(reason: String) -> Probe {
    Probe::Unknown(Doubt {
        reason,
        passing: true,
    })
}

/// A look at the device itself; and for what our own mkfs had begun, at whether it is whole.
fn look(disks: Disks<'_>, order: &Order) -> Probe {
    let Order {
        wanted,
        device,
        entry,
        place,
    } = order;
    let begun = Instant::now();
    let mut told = begun;
    let mut progress = |done: u64, all: u64| {
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            let rate = u128::from(done) * 1000 / begun.elapsed().as_millis().max(1);
            tracing::info!(
                disk = wanted.name,
                device = device.id.name,
                "read {} of {} to prove that it is blank, {} a second",
                size::words(done),
                size::words(all),
                size::words(u64::try_from(rate).unwrap_or(u64::MAX)),
            );
        }
    };
    // A disk that is refused when it is blank again, too, is not read by time at each pass.
    let made = entry
        .as_ref()
        .is_some_and(|entry| entry.progress > Progress::Intended && !wanted.ephemeral);
    let proof = match wanted.proof {
        ProofKind::Timed if made => ProofKind::Sampled,
        proof => proof,
    };
    let limits = Limits {
        budget: Duration::from_secs(wanted.proof_seconds.into()),
        ..Limits::default()
    };
    let mut probe = disks.probe_within(device, proof, *place, limits, &mut progress);
    if let (Probe::Blank(blank), ProofKind::Timed) = (&probe, wanted.proof) {
        tracing::info!(
            disk = wanted.name,
            device = device.id.name,
            "blank, {}",
            blank.words()
        );
    }
    if device.uses.is_empty()
        && let Probe::HasData(content) = &mut probe
        && content.kind == wanted.filesystem.word()
        && let Err(reason) = add_size(disks, device, content)
    {
        return unknown(reason);
    }
    if let (Probe::HasData(content), Some(entry)) = (&mut probe, entry)
        && entry.progress == Progress::Intended
        && device.uses.is_empty()
    {
        content.complete = complete(disks, wanted, &disks.roots.root(device.node()), entry, content);
        content.left = left(disks, wanted, device, entry, content);
    }
    probe
}

/// Who wrote what is on the disk, when it may be from our own unfinished `mkfs`; none when it is not,
/// and when that could not be found out.
fn left(
    disks: Disks<'_>,
    wanted: &Wanted,
    device: &Device,
    entry: &Entry,
    content: &Content,
) -> Option<Left> {
    let planned = content.kind == entry.filesystem
        && content
            .uuid
            .as_ref()
            .is_some_and(|uuid| uuid.eq_ignore_ascii_case(&entry.uuid));
    // What an unfinished luksFormat leaves is noise, which cannot be told from other data.
    if entry.luks_uuid.is_some() || !content.also.is_empty() || content.is_known() && !planned {
        return None;
    }
    // Only what every proof reads is judged byte by byte.
    if let Some(at) = content.apart {
        return Some(Left::Foreign { at });
    }
    let (_, arguments) = mkfs::arguments(wanted, &entry.uuid);
    let left = disks.left(&device.id, entry, &arguments, wanted.proof);
    left.map_err(|doubt| {
        let reason = doubt.reason;
        tracing::warn!(disk = wanted.name, reason, "who wrote what is on it is not known");
    })
    .ok()
}

/// Adds the size of the filesystem, and metadata of another volume behind its end: a half of a mirror whose volume has grown is no filesystem to be mounted.
fn add_size(disks: Disks<'_>, device: &Device, content: &mut Content) -> Result<(), String> {
    let failed =
        |error: std::io::Error| format!("cannot read its superblock or what is behind its end: {error}");
    let node = disks.roots.root(device.node());
    let superblock = superblock::read(&node).map_err(failed)?;
    content.filesystem_bytes = superblock.and_then(|superblock| superblock.filesystem_bytes);
    let Some(bytes) = content.filesystem_bytes.filter(|bytes| *bytes < device.id.size) else {
        return Ok(());
    };
    if let Some((kind, offset)) = disks.metadata_behind(&device.id, bytes).map_err(failed)? {
        content.also.push(format!("{kind} at byte {offset}"));
    }
    Ok(())
}

/// Whether what our own tool has begun on the disk itself is whole; none when that is not what is there, and when nobody can say.
fn complete(
    disks: Disks<'_>,
    wanted: &Wanted,
    node: &Path,
    entry: &Entry,
    content: &Content,
) -> Option<bool> {
    let (kind, planned) = match &entry.luks_uuid {
        Some(luks) => (LUKS, luks),
        None => (entry.filesystem.as_str(), &entry.uuid),
    };
    let uuid = content.uuid.as_ref()?;
    if content.kind != kind || !uuid.eq_ignore_ascii_case(planned) {
        return None;
    }
    let judged = match (&entry.luks_uuid, &wanted.encryption) {
        (None, _) => check::is_intact(disks.commands, &entry.filesystem, node).map_err(error_chain),
        // A header is written in one go: when the key opens it with which it was made, it is whole.
        (Some(_), Some(encryption)) => {
            let key = disks.roots.root(made_with(encryption)?);
            luks::fits(disks.commands, &key, node).map_err(error_chain)
        }
        (Some(_), None) => return None,
    };
    judged
        .map_err(|reason| tracing::warn!(disk = wanted.name, reason, "what was begun on it is not judged"))
        .ok()
}

/// The file of the key that a header is made with: the one that is asked for, or with a TPM the recovery key.
pub(super) fn made_with(encryption: &Encryption) -> Option<&str> {
    match &encryption.key {
        KeySource::File(path) => Some(path),
        KeySource::Tpm2 => encryption.recovery.as_deref(),
    }
}
