//! Observes everything that a plan needs besides settings and journal. Writes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use virtfleet_agent_core::disks::{
    CloneState, Content, Device, DeviceId, Doubt, Key, Plan, Probe, Seen, Use, Wanted,
    device::DevNumber,
    journal::{Entry, Journal, Progress},
    known::KnownDisks,
    matching, mkfs,
    seen::{Mapping, Mounted},
    state::DisksState,
};
use virtfleet_agent_host::{
    btrfs_members, disk_files, disk_mounts,
    disks::tools::{blkid, btrfs, check, ext4, xfs},
    mount_point, own_program, owner_of, swapped,
};
use virtfleet_wire::settings::DiskFilesystem;

use super::{
    carriers, clone, environment,
    observed::PlanDisksError,
    probes::{ProbeQueue, ProbeWait, add_devices, add_own},
    provisioner::DiskProvisioner,
    seed::SEED_DIRECTORY,
};

/// Prefix of our mappings in `/dev/mapper`.
const MAPPING_PREFIX: &str = "virtfleet-";

/// Offset of the data in a LUKS2 container, in bytes: cryptsetup's default.
const LUKS2_DATA_OFFSET: u64 = 16 << 20;

/// Observations that need not be repeated.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Results of recent probes, each with its device.
    probes: BTreeMap<String, (DeviceId, Probe)>,
    /// Results of the clone checks, for the same devices.
    clones: BTreeMap<String, CloneState>,
    /// By UUID: the sizes of a device and of the filesystem that filled it, as an earlier run of
    /// this boot observed them. A mounted filesystem does not shrink.
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
            clones: BTreeMap::new(),
            sizes: sizes.collect(),
        }
    }

    /// Adds what was observed since. Results of disks that this run made replace earlier ones.
    #[must_use]
    pub(super) fn with(&self, plan: &Plan, seen: &Seen, made: &[(String, Probe)]) -> Self {
        let mut known = self.clone();
        known.clones.extend(seen.clones.clone());
        known
            .clones
            .retain(|name, _| !made.iter().any(|(made, _)| made == name));
        for disk in &plan.disks {
            let made = made
                .iter()
                .rfind(|(name, _)| *name == disk.name)
                .map(|(_, probe)| probe);
            if let (Some(device), Some(probe)) = (&disk.device, made.or_else(|| seen.probes.get(&disk.name)))
            {
                known
                    .probes
                    .insert(disk.name.clone(), (device.clone(), probe.clone()));
            }
        }
        known
    }

    /// Drops the probe results of these disks.
    pub(super) fn forget(&mut self, names: &BTreeSet<String>) {
        self.probes.retain(|name, _| !names.contains(name));
    }

    /// Drops the sizes, because something has grown.
    pub(super) fn regrow(&mut self) {
        self.sizes.clear();
    }

    fn probe(&self, name: &str, device: &Device) -> Option<&Probe> {
        let (id, probe) = self.probes.get(name)?;
        (*id == device.id).then_some(probe)
    }
}

/// Observes everything. Disks that are not in place are probed together; `wait` says whether slow
/// probes are waited for.
pub(super) fn observe(
    provisioner: &DiskProvisioner<'_>,
    wanted: &[Wanted],
    journal: &Journal,
    known: &Known,
    probe_queue: &mut ProbeQueue<'_, '_>,
    wait: ProbeWait,
) -> Result<Seen, PlanDisksError> {
    let disks = provisioner.disks();
    let mut devices = if wanted.iter().any(Wanted::names_partition) {
        disks.devices_and_partitions()?
    } else {
        disks.devices()?
    };
    disks.add_writers(&mut devices)?;
    carriers::ask(provisioner, wanted, &mut devices);
    // Only now: a kubelet that starts after this was not there when the disks were listed.
    let boot = environment::boot(provisioner);
    let known_disks = KnownDisks::mark(journal, wanted, &boot, &mut devices);
    for device in &mut devices {
        // An interrupted copy is ours. A run that applies unmounts it first.
        device
            .uses
            .retain(|used| !matches!(used, Use::Mounted(at) if at.starts_with(SEED_DIRECTORY)));
    }
    let mut mounts = disk_mounts(provisioner.roots)?;
    mounts.retain(|mount| !mount.mount_point.starts_with(SEED_DIRECTORY));
    let swaps = swapped(provisioner.roots)?;
    let mut seen = Seen {
        vm_uuid: provisioner.vm_uuid.to_owned(),
        boot_id: provisioner.boot_id.to_owned(),
        known_disks,
        btrfs: btrfs_members(provisioner.roots),
        files: disk_files(provisioner.roots, provisioner.systemd),
        systemd: provisioner.systemd,
        missing_tools: environment::missing_tools(provisioner, wanted),
        bad_keys: environment::bad_keys(provisioner, wanted),
        agent: if provisioner.systemd {
            own_program()
        } else {
            String::new()
        },
        gate_off: environment::gate_off(provisioner),
        users: environment::numbers(provisioner, "/etc/passwd", wanted, |owner| owner.user.as_ref()),
        groups: environment::numbers(provisioner, "/etc/group", wanted, |owner| owner.group.as_ref()),
        ..Seen::default()
    };
    let udev = carriers::of_udev(&devices);
    let selections = matching::select(wanted, &devices, provisioner.vm_uuid);
    let mut settled = true;
    let mut looked_at = Vec::new();
    for (wanted, selection) in wanted.iter().zip(&selections) {
        let Ok((_, index)) = &selection.found else {
            settled = false;
            continue;
        };
        let device = &devices[*index];
        let entry = journal.entries.iter().find(|entry| entry.name == wanted.name);
        let uuid = udev.get(&device.id.number);
        let probe = in_place(provisioner, wanted, device, entry, &mounts, &swaps, uuid);
        settled &= probe.is_some();
        if let Some(probe) = probe.or_else(|| known.probe(&wanted.name, device).cloned()) {
            seen.probes.insert(wanted.name.clone(), probe);
            let judged = known.clones.get(&wanted.name);
            seen.clones
                .extend(judged.map(|state| (wanted.name.clone(), state.clone())));
        } else {
            probe_queue.want(wanted, device, journal);
            looked_at.push((wanted, device));
        }
    }
    probe_queue.wait(wait);
    let looked_at: Vec<_> = looked_at
        .into_iter()
        .map(|(wanted, device)| (wanted, device, probe_queue.probe(&wanted.name, &device.id)))
        .collect();
    seen.clones.extend(clone::observe(provisioner, &looked_at));
    let probes = looked_at
        .into_iter()
        .map(|(wanted, _, probe)| (wanted.name.clone(), probe));
    seen.probes.extend(probes);
    seen.mappings = mappings(provisioner, wanted, &devices, journal);
    seen.uuids = carriers::all(provisioner, &devices, &seen.probes, &selections, settled);
    sizes_and_owners(provisioner, wanted, &devices, &seen, &mut mounts, known);
    let points: Vec<&str> = mounts.iter().map(|mount| mount.mount_point.as_str()).collect();
    for path in wanted.iter().flat_map(Wanted::paths) {
        if points.contains(&path) {
            continue;
        }
        seen.mount_points
            .insert(path.to_owned(), mount_point(provisioner.roots, path, &points));
    }
    seen.devices = devices;
    seen.mounts = mounts;
    seen.swaps = swaps;
    Ok(seen)
}

/// The content of a disk that is in place: mounted or swapped to, as the declared kind. Its UUID
/// comes from udev, or from the journal if it names this device in this boot. Without either, the
/// disk is probed. Of a btrfs the superblock is read: only it has the number of devices that are
/// not declared, not disks, or missing.
fn in_place(
    provisioner: &DiskProvisioner<'_>,
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
            entry.boot_id == provisioner.boot_id
                && entry.progress == Progress::Used
                && (entry.device.number, entry.device.diskseq) == (device.id.number, device.id.diskseq)
                && entry.device.place() == device.id.place()
        })
        .map(|entry| &entry.uuid);
    let mut content = Content {
        kind: kind.to_owned(),
        uuid: Some(journaled.or(udev)?.clone()),
        ..Content::default()
    };
    let read = add_devices(&provisioner.roots.root(device.node()), &mut content);
    Some(read.map_or_else(
        |reason| {
            Probe::Unknown(Doubt {
                reason,
                passing: true,
            })
        },
        |()| Probe::HasData(content),
    ))
}

fn mappings(
    provisioner: &DiskProvisioner<'_>,
    wanted: &[Wanted],
    devices: &[Device],
    journal: &Journal,
) -> BTreeMap<String, Mapping> {
    if wanted.iter().all(|wanted| wanted.encryption.is_none()) {
        return BTreeMap::new();
    }
    let mut mappings = BTreeMap::new();
    for container in provisioner.disks().containers(MAPPING_PREFIX) {
        let node = provisioner.disks().mapping_node(&container.mapping);
        let name = container.mapping.strip_prefix(MAPPING_PREFIX).unwrap_or_default();
        let begun = |kind: &str| {
            journal.entries.iter().find(|entry| {
                let this = entry.name == name && entry.filesystem == kind;
                this && entry.progress <= Progress::Encrypted
                    && entry.luks_uuid.as_ref() == Some(&container.luks_uuid)
            })
        };
        let wanted = wanted.iter().find(|wanted| wanted.name == name);
        let left = |kind: &str| {
            let entry = begun(kind)?;
            let (_, arguments) = mkfs::arguments(wanted?, &entry.uuid);
            let left = provisioner.disks().left_in(&container, entry, &arguments);
            left.map_err(|doubt| {
                tracing::warn!(disk = name, reason = doubt.reason, "cannot check its container");
            })
            .ok()
        };
        let probe = match blkid::probe(provisioner.commands, &node) {
            Ok(Some(mut known)) => {
                let kind = known.kinds.remove(0);
                let complete =
                    begun(&kind).and_then(|_| check::is_intact(provisioner.commands, &kind, &node).ok());
                let mut content = Content {
                    left: left(&kind),
                    kind,
                    also: known.kinds,
                    uuid: known.uuid,
                    label: known.label,
                    complete,
                    ..Content::default()
                };
                match add_own(provisioner.commands, &node, &journal.entries, &mut content)
                    .and_then(|()| add_devices(&node, &mut content))
                {
                    Ok(()) => Probe::HasData(content),
                    Err(reason) => Probe::Unknown(Doubt {
                        reason,
                        passing: true,
                    }),
                }
            }
            // The content of a new container is random. What was written through it shows on the
            // device below.
            Ok(None) => Probe::HasData(Content {
                left: wanted.and_then(|wanted| left(wanted.filesystem.word())),
                ..Content::default()
            }),
            Err(doubt) => Probe::Unknown(doubt),
        };
        let below = devices
            .iter()
            .find(|device| container.below.first() == Some(&device.id.name));
        mappings.insert(
            container.mapping.clone(),
            Mapping {
                number: container.number,
                luks_uuid: container.luks_uuid,
                size: container.size,
                could_be: below.map_or(container.size, |device| {
                    device.id.size.saturating_sub(LUKS2_DATA_OFFSET)
                }),
                probe,
            },
        );
    }
    mappings
}

/// Adds the sizes and owners, which the plan compares with the device and the declared owner.
fn sizes_and_owners(
    provisioner: &DiskProvisioner<'_>,
    wanted: &[Wanted],
    devices: &[Device],
    seen: &Seen,
    mounts: &mut [Mounted],
    known: &Known,
) {
    for wanted in wanted {
        for bind in &wanted.binds {
            let there = mounts
                .iter_mut()
                .rev()
                .find(|mount| mount.mount_point == bind.path);
            if let Some(there) = there {
                there.owner = owner_of(&provisioner.roots.root(&bind.path));
            }
        }
        let Some(path) = &wanted.mount_point else {
            continue;
        };
        let Some(mounted) = mounts.iter_mut().rev().find(|mount| mount.mount_point == *path) else {
            continue;
        };
        let place = provisioner.roots.root(path);
        mounted.owner = owner_of(&place);
        let device = devices.iter().find(|device| device.id.number == mounted.number);
        let uuid = match seen.probes.get(&wanted.name) {
            Some(Probe::HasData(content)) => content.uuid.as_deref(),
            _ => None,
        };
        let before = uuid.and_then(|uuid| known.sizes.get(uuid));
        mounted.filesystem_bytes = match (before, device) {
            (Some((size, bytes)), Some(device)) if *size == device.id.size => Some(*bytes),
            _ => size(
                provisioner,
                &mounted.filesystem,
                device,
                seen,
                mounted.number,
                &place,
            ),
        };
    }
}

fn size(
    provisioner: &DiskProvisioner<'_>,
    filesystem: &str,
    device: Option<&Device>,
    seen: &Seen,
    number: DevNumber,
    place: &Path,
) -> Option<u64> {
    let node = device.map_or_else(
        || {
            let mapping = seen.mappings.iter().find(|(_, mapping)| mapping.number == number);
            mapping.map(|(name, _)| provisioner.disks().mapping_node(name))
        },
        |device| Some(provisioner.roots.root(device.node())),
    )?;
    let asked = match filesystem {
        "ext4" => ext4::size(provisioner.commands, &node),
        "xfs" => xfs::size(provisioner.commands, place),
        "btrfs" => btrfs::size(provisioner.commands, &node),
        _ => return None,
    };
    asked
        .map_err(|error| tracing::warn!(%error, "the size of a filesystem is not known"))
        .ok()
}

/// The key by which a disk was found, as text.
pub(super) fn key_words(key: Option<&Key>) -> String {
    key.map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests;
