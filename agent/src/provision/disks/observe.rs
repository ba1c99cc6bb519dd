//! Everything that a plan is made from, besides settings and journal. Nothing is written.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use virtfleet_agent_core::{
    disks::{
        Content, Device, DeviceId, Key, Probe, Seen, Use, Wanted,
        device::DevNumber,
        journal::{Entry, Journal, Progress},
        matching, mkfs,
        seen::{Mapping, Mounted},
        state::DisksState,
        units,
        wanted::{Encryption, KeySource, Owner},
    },
    procfs::udev::properties,
};
use virtfleet_wire::settings::DiskFilesystem;

use super::{
    pass::{Engine, EngineError, chain},
    seed::SEED_DIRECTORY,
};
use crate::host::{
    bad_key, disk_files, disk_mounts,
    disks::tools::{blkid, btrfs, check, ext4, luks, xfs},
    find_program, mount_point, own_program, owner_number, owner_of, read_text, swapped,
};

/// What our containers are called in `/dev/mapper`.
const MAPPINGS: &str = "virtfleet-";

/// A container, as blkid names it.
const LUKS: &str = "crypto_LUKS";

/// Where the data of a LUKS2 container begin: cryptsetup's default.
const HEADER: u64 = 16 << 20;

/// What need not be found out anew.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// What is on disks that were looked at a moment ago.
    pub(super) probes: BTreeMap<String, Probe>,
    /// By UUID: sizes of a device and of the filesystem that filled it, as an earlier pass of this boot saw them. A mounted filesystem does not shrink.
    sizes: BTreeMap<String, (u64, u64)>,
}

impl Known {
    pub(super) fn of(previous: &DisksState) -> Self {
        let sizes = previous.disks.iter().filter_map(|disk| {
            let bytes = disk.filesystem_bytes?;
            (!disk.uuid.is_empty()).then(|| (disk.uuid.clone(), (disk.size_bytes, bytes)))
        });
        Self {
            probes: BTreeMap::new(),
            sizes: sizes.collect(),
        }
    }

    /// Forgets the sizes: something has grown.
    pub(super) fn regrow<'n>(&mut self, touched: impl Iterator<Item = &'n str>) {
        if touched.count() > 0 {
            self.sizes.clear();
        }
    }
}

pub(super) fn observe(
    engine: &Engine<'_>,
    wanted: &[Wanted],
    journal: &Journal,
    known: &Known,
) -> Result<Seen, EngineError> {
    let disks = engine.disks();
    let mut devices = disks.devices()?;
    for device in &mut devices {
        // A copy that was interrupted is ours; an apply unmounts it first.
        device
            .uses
            .retain(|used| !matches!(used, Use::Mounted(at) if at.starts_with(SEED_DIRECTORY)));
    }
    let mut mounts = disk_mounts(engine.roots)?;
    mounts.retain(|mount| !mount.mount_point.starts_with(SEED_DIRECTORY));
    let swaps = swapped(engine.roots)?;
    let mut seen = Seen {
        vm_uuid: engine.vm_uuid.to_owned(),
        boot_id: engine.boot_id.to_owned(),
        files: disk_files(engine.roots, engine.systemd),
        systemd: engine.systemd,
        missing_tools: missing_tools(engine, wanted),
        bad_keys: bad_keys(engine, wanted),
        agent: if engine.systemd {
            own_program()
        } else {
            String::new()
        },
        gate_off: gate_off(engine),
        users: numbers(engine, "/etc/passwd", wanted, |owner| owner.user.as_ref()),
        groups: numbers(engine, "/etc/group", wanted, |owner| owner.group.as_ref()),
        ..Seen::default()
    };
    let udev = udev_uuids(engine, &devices);
    let mut settled = true;
    for selection in matching::select(wanted, &devices) {
        let (Some(wanted), Ok((_, index))) = (
            wanted.iter().find(|wanted| wanted.name == selection.name),
            &selection.found,
        ) else {
            settled = false;
            continue;
        };
        let device = &devices[*index];
        let entry = journal.entries.iter().find(|entry| entry.name == wanted.name);
        let uuid = udev.get(&device.id.number);
        let probe = in_place(engine, wanted, device, entry, &mounts, &swaps, uuid);
        settled &= probe.is_some();
        let probe = probe
            .or_else(|| known.probes.get(&wanted.name).cloned())
            .unwrap_or_else(|| look(engine, wanted, device, entry));
        seen.probes.insert(wanted.name.clone(), probe);
    }
    seen.mappings = mappings(engine, wanted, &devices, journal);
    seen.uuids = uuids(engine, &devices, &seen.probes, wanted, &udev, settled);
    sizes_and_owners(engine, wanted, &devices, &seen, &mut mounts, known);
    let points: Vec<&str> = mounts.iter().map(|mount| mount.mount_point.as_str()).collect();
    for path in wanted.iter().filter_map(|wanted| wanted.mount_point.as_ref()) {
        if points.contains(&path.as_str()) {
            continue;
        }
        seen.mount_points
            .insert(path.clone(), mount_point(engine.roots, path, &points));
    }
    seen.devices = devices;
    seen.mounts = mounts;
    seen.swaps = swaps;
    Ok(seen)
}

/// What is on a disk that is where it belongs: mounted there or swapped to, as the declared kind. Its UUID is what udev knows, or what the journal
/// says of this very device in this boot; without either it is looked at.
fn in_place(
    engine: &Engine<'_>,
    wanted: &Wanted,
    device: &Device,
    entry: Option<&Entry>,
    mounts: &[Mounted],
    swaps: &BTreeSet<DevNumber>,
    udev: Option<&String>,
) -> Option<Probe> {
    if wanted.encryption.is_some() {
        return None;
    }
    let kind = wanted.filesystem.word();
    let there = match &wanted.mount_point {
        Some(path) => mounts
            .iter()
            .rev()
            .find(|mount| mount.mount_point == *path)
            .is_some_and(|mount| {
                mount.number == device.id.number && mount.filesystem == kind && mount.root == "/"
            }),
        None => wanted.filesystem == DiskFilesystem::Swap && swaps.contains(&device.id.number),
    };
    if !there {
        return None;
    }
    let journaled = entry
        .filter(|entry| {
            entry.boot_id == engine.boot_id
                && entry.progress == Progress::Used
                && (entry.device.number, entry.device.diskseq) == (device.id.number, device.id.diskseq)
        })
        .map(|entry| &entry.uuid);
    Some(Probe::HasData(Content {
        kind: kind.to_owned(),
        uuid: Some(journaled.or(udev)?.clone()),
        ..Content::default()
    }))
}

/// A look at the device itself; and for what our own mkfs had begun, at whether it is whole.
fn look(engine: &Engine<'_>, wanted: &Wanted, device: &Device, entry: Option<&Entry>) -> Probe {
    let mut percent = 0;
    let mut progress = |done: u64, all: u64| {
        let now = done.saturating_mul(100) / all.max(1);
        if now >= percent + 10 {
            percent = now;
            tracing::info!(
                disk = wanted.name,
                percent,
                "reading it to prove that it is blank"
            );
        }
    };
    let mut probe = engine.disks().look(device, wanted.proof, &mut progress);
    if let (Probe::HasData(content), Some(entry)) = (&mut probe, entry)
        && entry.progress == Progress::Intended
        && device.uses.is_empty()
    {
        content.complete = complete(engine, wanted, &engine.roots.root(device.node()), entry, content);
    }
    probe
}

/// Whether what our own tool has begun on the disk itself is whole; none when that is not what is there, and when nobody can say.
fn complete(
    engine: &Engine<'_>,
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
        (None, _) => check::is_content(engine.commands, &entry.filesystem, node).map_err(chain),
        // A header is written in one go: when the key opens it with which it was made, it is whole.
        (Some(_), Some(encryption)) => {
            let key = engine.roots.root(made_with(encryption)?);
            luks::fits(engine.commands, &key, node).map_err(chain)
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

fn mappings(
    engine: &Engine<'_>,
    wanted: &[Wanted],
    devices: &[Device],
    journal: &Journal,
) -> BTreeMap<String, Mapping> {
    if wanted.iter().all(|wanted| wanted.encryption.is_none()) {
        return BTreeMap::new();
    }
    let mut mappings = BTreeMap::new();
    for container in engine.disks().containers(MAPPINGS) {
        let node = engine.disks().mapping_node(&container.mapping);
        let probe = match blkid::probe(engine.commands, &node) {
            Ok(Some(mut known)) => {
                let kind = known.kinds.remove(0);
                let name = container.mapping.strip_prefix(MAPPINGS).unwrap_or_default();
                let begun = journal.entries.iter().any(|entry| {
                    entry.name == name && entry.progress <= Progress::Encrypted && entry.filesystem == kind
                });
                let complete = begun
                    .then(|| check::is_content(engine.commands, &kind, &node).ok())
                    .flatten();
                Probe::HasData(Content {
                    kind,
                    also: known.kinds,
                    uuid: known.uuid,
                    label: known.label,
                    complete,
                    ..Content::default()
                })
            }
            // In a new container everything reads as noise.
            Ok(None) => Probe::HasData(Content::default()),
            Err(doubt) => Probe::Unknown(doubt),
        };
        let below = devices
            .iter()
            .find(|device| container.below.first() == Some(&device.id.name));
        mappings.insert(
            container.mapping,
            Mapping {
                number: container.number,
                luks_uuid: container.luks_uuid,
                size: container.size,
                could_be: below.map_or(container.size, |device| device.id.size.saturating_sub(HEADER)),
                probe,
            },
        );
    }
    mappings
}

/// What udev knows of each device.
fn udev_uuids(engine: &Engine<'_>, devices: &[Device]) -> BTreeMap<DevNumber, String> {
    let uuid = |device: &Device| {
        let path = engine.roots.udev_data.join(format!("b{}", device.id.number));
        let text = read_text(&path, 64 << 10).ok()?;
        let found = properties(&text).find(|(key, _)| *key == "ID_FS_UUID");
        found.map(|(_, uuid)| uuid.to_owned())
    };
    devices
        .iter()
        .filter_map(|device| Some((device.id.number, uuid(device)?)))
        .collect()
}

/// Who carries which UUID. Without udev each device that is not declared is asked, unless everything is in place already.
fn uuids(
    engine: &Engine<'_>,
    devices: &[Device],
    probes: &BTreeMap<String, Probe>,
    wanted: &[Wanted],
    udev: &BTreeMap<DevNumber, String>,
    settled: bool,
) -> BTreeMap<String, Vec<DeviceId>> {
    let mut uuids: BTreeMap<String, Vec<DeviceId>> = BTreeMap::new();
    let mut add = |uuid: &str, id: &DeviceId| {
        let carriers = uuids.entry(uuid.to_owned()).or_default();
        if !carriers.contains(id) {
            carriers.push(id.clone());
        }
    };
    let mut asked = BTreeSet::new();
    for selection in matching::select(wanted, devices) {
        if let (Ok((_, index)), Some(Probe::HasData(content))) =
            (&selection.found, probes.get(&selection.name))
        {
            asked.insert(devices[*index].id.number);
            if let Some(uuid) = &content.uuid {
                add(uuid, &devices[*index].id);
            }
        }
    }
    for device in devices.iter().filter(|device| !asked.contains(&device.id.number)) {
        match udev.get(&device.id.number) {
            Some(uuid) => add(uuid, &device.id),
            None if settled || device.carries_system || !udev.is_empty() => {}
            None => {
                let node = engine.roots.root(device.node());
                if let Ok(Some(known)) = blkid::probe(engine.commands, &node)
                    && let Some(uuid) = known.uuid
                {
                    add(&uuid, &device.id);
                }
            }
        }
    }
    uuids
}

/// What the plan compares with the device and with the declared owner.
fn sizes_and_owners(
    engine: &Engine<'_>,
    wanted: &[Wanted],
    devices: &[Device],
    seen: &Seen,
    mounts: &mut [Mounted],
    known: &Known,
) {
    for wanted in wanted {
        let Some(path) = &wanted.mount_point else {
            continue;
        };
        let Some(mounted) = mounts.iter_mut().rev().find(|mount| mount.mount_point == *path) else {
            continue;
        };
        let place = engine.roots.root(path);
        mounted.owner = owner_of(&place);
        let device = devices.iter().find(|device| device.id.number == mounted.number);
        let uuid = match seen.probes.get(&wanted.name) {
            Some(Probe::HasData(content)) => content.uuid.as_deref(),
            _ => None,
        };
        let before = uuid.and_then(|uuid| known.sizes.get(uuid));
        mounted.filesystem_bytes = match (before, device) {
            (Some((size, bytes)), Some(device)) if *size == device.id.size => Some(*bytes),
            _ => size(engine, &mounted.filesystem, device, seen, mounted.number, &place),
        };
    }
}

fn size(
    engine: &Engine<'_>,
    filesystem: &str,
    device: Option<&Device>,
    seen: &Seen,
    number: DevNumber,
    place: &Path,
) -> Option<u64> {
    let node = device.map_or_else(
        || {
            let mapping = seen.mappings.iter().find(|(_, mapping)| mapping.number == number);
            mapping.map(|(name, _)| engine.disks().mapping_node(name))
        },
        |device| Some(engine.roots.root(device.node())),
    )?;
    let asked = match filesystem {
        "ext4" => ext4::size(engine.commands, &node),
        "xfs" => xfs::size(engine.commands, place),
        "btrfs" => btrfs::size(engine.commands, &node),
        _ => return None,
    };
    asked
        .map_err(|error| tracing::warn!(%error, "the size of a filesystem is not known"))
        .ok()
}

fn missing_tools(engine: &Engine<'_>, wanted: &[Wanted]) -> BTreeSet<String> {
    let mut tools: BTreeSet<&str> = BTreeSet::new();
    for wanted in wanted {
        tools.extend([mkfs::program(wanted.filesystem), "blkid"]);
        if wanted.encryption.is_some() {
            tools.insert("cryptsetup");
        }
        if wanted
            .encryption
            .as_ref()
            .is_some_and(|encryption| encryption.key == KeySource::Tpm2)
        {
            tools.insert("systemd-cryptenroll");
        }
        if wanted.grow {
            tools.extend(match wanted.filesystem {
                DiskFilesystem::Ext4 => Some("resize2fs"),
                DiskFilesystem::Xfs => Some("xfs_growfs"),
                DiskFilesystem::Btrfs => Some("btrfs"),
                DiskFilesystem::Swap => None,
            });
        }
    }
    tools
        .into_iter()
        .filter(|tool| find_program(engine.roots, tool).is_none())
        .map(str::to_owned)
        .collect()
}

fn bad_keys(engine: &Engine<'_>, wanted: &[Wanted]) -> BTreeMap<String, String> {
    let (mut paths, mut tpm) = (BTreeSet::new(), false);
    for encryption in wanted.iter().filter_map(|wanted| wanted.encryption.as_ref()) {
        match &encryption.key {
            KeySource::File(path) => drop(paths.insert(path)),
            KeySource::Tpm2 => tpm = true,
        }
        paths.extend(&encryption.recovery);
    }
    let mut bad: BTreeMap<String, String> = paths
        .into_iter()
        .filter_map(|path| Some((path.clone(), bad_key(engine.roots, path)?)))
        .collect();
    // The resource manager, which systemd-cryptenroll uses.
    if tpm && !engine.roots.root("/dev/tpmrm0").exists() {
        bad.insert(
            "tpm2".to_owned(),
            "the guest has no TPM 2.0 (/dev/tpmrm0)".to_owned(),
        );
    }
    bad
}

fn gate_off(engine: &Engine<'_>) -> bool {
    let text = read_text(&engine.roots.proc("cmdline"), 64 << 10).unwrap_or_default();
    text.split_ascii_whitespace().any(|word| word == units::GATE_OFF)
}

/// The numbers of the names that the settings give.
fn numbers(
    engine: &Engine<'_>,
    file: &'static str,
    wanted: &[Wanted],
    name: impl Fn(&Owner) -> Option<&String>,
) -> BTreeMap<String, u32> {
    let names = wanted.iter().filter_map(|wanted| name(wanted.owner.as_ref()?));
    names
        .filter_map(|name| {
            let number = owner_number(engine.roots, file, Some(name)).ok()??;
            Some((name.clone(), number))
        })
        .collect()
}

/// By what a disk was found, in words.
pub(super) fn key_words(key: Option<&Key>) -> String {
    key.map(ToString::to_string).unwrap_or_default()
}
