//! Probes disks, several at a time, so that a slow or silent disk does not delay the others.
//!
//! ```text
//! want ─▶ queue ─▶ one thread per probe, PROBES_AT_ONCE at a time ─▶ done
//! (a probe that takes longer than MAX_FAST_PROBE no longer counts, and continues)
//! ```
//!
//! One thread reads a device, even if several probes of it are requested. The host limits how long
//! a probe may take.

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

use virtfleet_agent_host::{
    Commands,
    disks::{
        Disks, Limits, own_filesystem,
        tools::{check, luks, superblock},
    },
};
use virtfleet_wire::settings::ProofKind;

use crate::engine::error_chain;

/// Maximum number of probes at a time. Probes that take longer than [`MAX_FAST_PROBE`] do not
/// count.
pub(super) const PROBES_AT_ONCE: usize = 4;
/// Longest probe of a healthy disk: 100 MiB, and the tools.
const MAX_FAST_PROBE: Duration = Duration::from_secs(3);

/// Timeout of listing the signatures on an own filesystem: ZFS has hundreds.
const OWN_TIMEOUT: Duration = Duration::from_mins(1);

/// Interval at which the progress of a probe is logged.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Name of a LUKS container in blkid.
const LUKS: &str = "crypto_LUKS";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeWait {
    /// Only those that take at most [`MAX_FAST_PROBE`].
    Fast,
    All,
}

struct ProbeRequest {
    wanted: Wanted,
    device: Device,
    /// The journal's entries of all disks: the settings may name the disk otherwise now.
    entries: Vec<Entry>,
    /// Offset at which an earlier probe has found data.
    place: Option<u64>,
}

/// Running probes, and the results of finished ones.
pub(super) struct ProbeQueue<'s, 'e> {
    scope: &'s Scope<'s, 'e>,
    disks: Disks<'e>,
    queue: VecDeque<ProbeRequest>,
    /// By the disk's name: the device, and when the probe began.
    running: BTreeMap<String, (DeviceId, Instant)>,
    done: BTreeMap<String, (DeviceId, Probe)>,
    sender: Sender<(String, DeviceId, Probe)>,
    results: Receiver<(String, DeviceId, Probe)>,
}

impl<'s, 'e> ProbeQueue<'s, 'e> {
    pub(super) fn new(scope: &'s Scope<'s, 'e>, disks: Disks<'e>) -> Self {
        let (sender, results) = channel();
        Self {
            scope,
            disks,
            queue: VecDeque::new(),
            running: BTreeMap::new(),
            done: BTreeMap::new(),
            sender,
            results,
        }
    }

    /// Requests a probe of a disk, unless one is queued, running or done. An earlier result of
    /// another device is dropped.
    pub(super) fn want(&mut self, wanted: &Wanted, device: &Device, journal: &Journal) {
        let name = &wanted.name;
        let seen = self.done.get(name).map(|(id, _)| id);
        let queued = self.queue.iter().find(|request| request.wanted.name == *name);
        let running = self.running.get(name).map(|(id, _)| id);
        let known = [seen, queued.map(|request| &request.device.id), running];
        if known.into_iter().flatten().any(|id| *id == device.id) {
            return;
        }
        self.done.remove(name);
        self.queue.retain(|request| request.wanted.name != *name);
        self.queue.push_back(ProbeRequest {
            wanted: wanted.clone(),
            device: device.clone(),
            entries: journal.entries.clone(),
            place: journal
                .found
                .iter()
                .find(|found| found.is_on(name, &device.id))
                .map(|found| found.offset),
        });
    }

    pub(super) fn wait(&mut self, wait: ProbeWait) {
        loop {
            let left: Vec<Duration> = self
                .running
                .values()
                .map(|(_, since)| MAX_FAST_PROBE.saturating_sub(since.elapsed()))
                .filter(|left| !left.is_zero())
                .collect();
            if left.len() < PROBES_AT_ONCE
                && let Some(request) = self.next()
            {
                self.start(request);
                continue;
            }
            let over = self.running.is_empty() || wait == ProbeWait::Fast && left.is_empty();
            // A queued probe still waits for a disk that another one reads.
            if over {
                return;
            }
            let next = left.into_iter().min().unwrap_or(Duration::from_hours(1));
            match self.results.recv_timeout(next) {
                Ok((name, id, probe)) => {
                    // The device was replaced by another one: its result is dropped.
                    if self.running.get(&name).is_some_and(|(running, _)| *running == id) {
                        self.running.remove(&name);
                        self.done.insert(name, (id, probe));
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    /// The first queued probe whose disk is not being read. Partitions of one disk wait for each
    /// other, because they share the disk's lock.
    fn next(&mut self) -> Option<ProbeRequest> {
        let read: BTreeSet<&str> = self.running.values().map(|(id, _)| id.disk()).collect();
        let free = |request: &ProbeRequest| {
            !read.contains(request.device.id.disk()) || request.device.id.partition.is_none()
        };
        let at = self.queue.iter().position(free)?;
        self.queue.remove(at)
    }

    /// The result of the probe of that device; unknown while it is running.
    pub(super) fn probe(&self, name: &str, id: &DeviceId) -> Probe {
        let seen = self.done.get(name).filter(|(seen, _)| seen == id);
        seen.map_or_else(
            || unknown("it has not answered yet".to_owned()),
            |(_, probe)| probe.clone(),
        )
    }

    /// The disks whose probe is running.
    pub(super) fn under_way(&self) -> BTreeSet<String> {
        let queued = self.queue.iter().map(|request| request.wanted.name.clone());
        self.running.keys().cloned().chain(queued).collect()
    }

    fn start(&mut self, request: ProbeRequest) {
        let (name, id) = (request.wanted.name.clone(), request.device.id.clone());
        self.running.insert(name.clone(), (id.clone(), Instant::now()));
        let (disks, sender) = (self.disks, self.sender.clone());
        let (whose, which) = (name.clone(), id.clone());
        let work = move || {
            let probe = catch_unwind(AssertUnwindSafe(|| probe_disk(disks, &request)));
            let probe = probe.unwrap_or_else(|_| unknown("the probe panicked".to_owned()));
            // Without a receiver the result is not needed.
            drop(sender.send((whose, which, probe)));
        };
        if let Err(error) = Builder::new()
            .name("disk-probe".to_owned())
            .spawn_scoped(self.scope, work)
        {
            self.running.remove(&name);
            let probe = unknown(format!("cannot start a thread to probe it: {error}"));
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

/// Probes the device. If our own tool had begun to write it, also checks whether that is complete.
fn probe_disk(disks: Disks<'_>, request: &ProbeRequest) -> Probe {
    let ProbeRequest {
        wanted,
        device,
        entries,
        place,
    } = request;
    let entry = entries.iter().find(|entry| entry.name == wanted.name);
    let begun = Instant::now();
    let mut told = begun;
    let mut progress = |done: u64, all: u64| {
        if told.elapsed() >= PROGRESS_INTERVAL {
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
    // A disk that would be refused even if it is blank is not read at each run.
    let made = entry.is_some_and(|entry| entry.progress > Progress::Intended && !wanted.ephemeral);
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
    let node = disks.roots.root(device.node());
    if let Probe::HasData(content) = &mut probe
        && let Err(reason) = add_own(disks.commands, &node, entries, content)
            // Also where another filesystem is declared: to erase one device damages the others.
            .and_then(|()| add_devices(&node, content))
    {
        return unknown(reason);
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
        content.complete = complete(disks, wanted, &node, entry, content);
        content.left = left(disks, wanted, device, entry, content);
    }
    probe
}

/// Who wrote the disk's content, if an unfinished `mkfs` of ours may have done so. None if it did
/// not, or if that could not be determined.
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
    // An unfinished luksFormat leaves random data, which cannot be told from other data.
    if entry.luks_uuid.is_some() || !content.also.is_empty() || content.is_known() && !planned {
        return None;
    }
    // Only the regions that every proof reads are checked byte by byte.
    if let Some(at) = content.apart {
        return Some(Left::Foreign { at });
    }
    let (_, arguments) = mkfs::arguments(wanted, &entry.uuid);
    let left = disks.left(&device.id, entry, &arguments, wanted.proof);
    left.map_err(|doubt| {
        let reason = doubt.reason;
        tracing::warn!(
            disk = wanted.name,
            reason,
            "cannot determine what wrote its content"
        );
    })
    .ok()
}

/// Replaces what blkid reports by the agent's own filesystem, in use, if that is on the device.
///
/// # Errors
/// Its superblock cannot be read.
pub(super) fn add_own(
    commands: &dyn Commands,
    node: &Path,
    entries: &[Entry],
    content: &mut Content,
) -> Result<(), String> {
    let uuid = content.uuid.as_deref();
    let is_recorded = || entries.iter().any(|entry| entry.records(&content.kind, uuid));
    if entries.is_empty() || content.also.is_empty() && is_recorded() {
        return Ok(());
    }
    let kinds = [&content.kind].into_iter().chain(&content.also);
    let found: Vec<String> = kinds.filter(|kind| !kind.is_empty()).cloned().collect();
    let own = own_filesystem(commands, node, entries, &found, OWN_TIMEOUT)
        .map_err(|error| format!("cannot read its superblock: {error}"))?;
    if let Some(own) = own {
        own.describe(content);
    }
    Ok(())
}

/// Adds the number of devices of a btrfs.
///
/// # Errors
/// Its superblock cannot be read.
pub(super) fn add_devices(node: &Path, content: &mut Content) -> Result<(), String> {
    if content.kind == "btrfs" {
        let superblock =
            superblock::read(node).map_err(|error| format!("cannot read its superblock: {error}"))?;
        content.devices = superblock.and_then(|superblock| superblock.devices);
    }
    Ok(())
}

/// Adds the size of the filesystem, and metadata of another volume behind its end. Half of a mirror
/// whose volume has grown must not be mounted as a filesystem.
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

/// Whether what our own tool has begun on the disk is complete. None if the disk holds something
/// else, or if that could not be determined.
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
        // A header is written at once. It is complete if the key that it was made with opens it.
        (Some(_), Some(encryption)) => {
            let key = disks.roots.root(made_with(encryption)?);
            luks::fits(disks.commands, &key, node).map_err(error_chain)
        }
        (Some(_), None) => return None,
    };
    judged
        .map_err(|reason| {
            tracing::warn!(
                disk = wanted.name,
                reason,
                "cannot determine whether it is complete"
            );
        })
        .ok()
}

/// The file of the key that a header is made with: the declared key, or with a TPM the recovery
/// key.
pub(super) fn made_with(encryption: &Encryption) -> Option<&str> {
    match &encryption.key {
        KeySource::File(path) => Some(path),
        KeySource::Tpm2 => encryption.recovery.as_deref(),
    }
}
