//! Matches declared disks with devices.
//!
//! Disks with an identity (serial, volume, path) are matched first. Devices that match any identity
//! are not available to disks declared by size and order ([`position`]). A device is never assigned
//! to two disks, and the volume of a CSI driver only to a disk that names it ([`csi`]).
//!
//! A partition matches only settings that name a partition (`partUuid`, `partLabel`), and these
//! match nothing else ([`part`]).

#![expect(clippy::result_large_err, reason = "at most one refusal per disk and run")]

pub mod csi;
mod part;
mod position;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    device::{Bus, Device, LEAST_BYTES, VIRTIO_SERIAL_BYTES},
    plan::{Refusal, RefusalKind},
    wanted::{Key, Wanted},
};

/// Device of a declared disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Name of the disk in the settings.
    pub name: String,
    /// Matched key and index of the device.
    pub found: Result<(Key, usize), Refusal>,
}

/// Returns one selection per declared disk, in their order. `vm_uuid` is that of [`super::Seen`];
/// the agent derives its UUIDs from it.
pub fn select(wanted: &[Wanted], devices: &[Device], vm_uuid: &str) -> Vec<Selection> {
    let by_identity = by_identity(wanted, devices);
    let uncounted = uncounted(&by_identity, devices);
    let positions = position::Positions::new(wanted, devices, vm_uuid, uncounted);
    let mut found: Vec<Result<(Key, usize), Refusal>> = wanted
        .iter()
        .zip(&by_identity)
        .map(|(disk, candidates)| {
            let (key, index) = if disk.is_positional() {
                positions.find(disk)?
            } else {
                if disk.names_partition() {
                    part::all_known(disk, devices)?;
                }
                let index = only(disk, devices, candidates)?;
                (key(disk, &devices[index]), index)
            };
            let device = &devices[index];
            ineligible(device).map_or(Ok((key, index)), |why| Err(not_eligible(device, why)))
        })
        .collect();
    refuse_double_claims(wanted, devices, &mut found);
    part::refuse_disk_and_partition(wanted, devices, &by_identity, &mut found);
    let names = wanted.iter().map(|disk| disk.name.clone());
    names
        .zip(found)
        .map(|(name, found)| Selection { name, found })
        .collect()
}

/// Returns the devices that match each disk's identity; empty for disks without one.
fn by_identity(wanted: &[Wanted], all: &[Device]) -> Vec<Vec<usize>> {
    let fitting = |disk: &Wanted| {
        let devices = all.iter().enumerate();
        let fitting = devices.filter(|(_, device)| !disk.is_positional() && fits_identity(disk, device, all));
        fitting.map(|(index, _)| index).collect()
    };
    wanted.iter().map(fitting).collect()
}

/// Whether a device matches a declared disk: a whole disk, or a partition if the settings name one.
fn fits_identity(disk: &Wanted, device: &Device, all: &[Device]) -> bool {
    match &device.id.partition {
        None => !disk.names_partition() && fits(disk, device),
        Some(partition) => partition.is_named_by(disk) && part::disk_fits(disk, device, all),
    }
}

/// Devices that `order` never counts: those that match an identity, the disks of such partitions,
/// and all partitions.
fn uncounted(by_identity: &[Vec<usize>], devices: &[Device]) -> BTreeSet<usize> {
    let mut named: BTreeSet<usize> = by_identity.iter().flatten().copied().collect();
    let disks: Vec<usize> = named
        .iter()
        .filter(|index| devices[**index].id.partition.is_some())
        .filter_map(|index| part::disk_of(&devices[*index], devices))
        .collect();
    named.extend(disks);
    let partitions = devices.iter().enumerate();
    named.extend(
        partitions
            .filter(|(_, device)| device.id.partition.is_some())
            .map(|(index, _)| index),
    );
    named
}

/// Returns the devices whose UUID must be known: those that could match a disk declared by size and
/// order.
pub fn by_position(wanted: &[Wanted], devices: &[Device]) -> BTreeSet<usize> {
    if !wanted.iter().any(Wanted::is_positional) {
        return BTreeSet::new();
    }
    let uncounted = uncounted(&by_identity(wanted, devices), devices);
    let candidate = |device: &Device| {
        let mut positional = wanted.iter().filter(|disk| disk.is_positional());
        positional.any(|disk| !csi::is_excluded(disk, device)) && ineligible(device).is_none()
    };
    (0..devices.len())
        .filter(|index| !uncounted.contains(index) && candidate(&devices[*index]))
        .collect()
}

/// Returns why a device must never be used, if so.
pub fn ineligible(device: &Device) -> Option<&'static str> {
    if device.carries_system {
        Some("it has the operating system")
    } else if device.read_only {
        Some("it is read-only")
    } else if device.id.size < LEAST_BYTES {
        Some("it is smaller than 64 MiB")
    } else {
        None
    }
}

/// Serial that a guest sees of a disk on that bus.
pub fn seen_serial(serial: &str, bus: Bus) -> &[u8] {
    let bytes = serial.as_bytes();
    match bus {
        Bus::Virtio => &bytes[..bytes.len().min(VIRTIO_SERIAL_BYTES)],
        _ => bytes,
    }
}

fn fits(disk: &Wanted, device: &Device) -> bool {
    fits_but_for_size(disk, device) && disk.size.is_none_or(|size| device.id.size == size)
}

fn fits_but_for_size(disk: &Wanted, device: &Device) -> bool {
    !csi::is_excluded(disk, device) && fits_all_named(disk, device)
}

/// Whether all conditions in `match` are met, ignoring whether the volume belongs to a CSI driver.
fn fits_what_is_named(disk: &Wanted, device: &Device) -> bool {
    fits_all_named(disk, device) && disk.size.is_none_or(|size| device.id.size == size)
}

fn fits_all_named(disk: &Wanted, device: &Device) -> bool {
    let serial = disk.serial.as_deref().is_none_or(|wanted| {
        let has = device.id.serial.as_deref().unwrap_or_default();
        !has.is_empty() && has.as_bytes() == seen_serial(wanted, device.bus)
    });
    serial
        && disk
            .volume
            .as_ref()
            .is_none_or(|volume| device.volume.as_ref() == Some(volume))
        && disk
            .path
            .as_deref()
            .is_none_or(|pattern| path_of(pattern, device).is_some())
}

fn path_of<'a>(pattern: &str, device: &'a Device) -> Option<&'a String> {
    device.paths.iter().find(|path| glob(pattern, path))
}

/// Matches a pattern in which `*` stands for any text.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = pattern.contains('*').then(|| parts.next_back()).flatten() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Key of the identity by which the device matched.
fn key(disk: &Wanted, device: &Device) -> Key {
    if let Some(uuid) = &disk.part_uuid {
        return Key::PartUuid(uuid.clone());
    }
    if let Some(label) = &disk.part_label {
        return Key::PartLabel(label.clone());
    }
    let serial = || {
        disk.serial
            .as_ref()
            .and(device.id.serial.clone())
            .map(Key::Serial)
    };
    let volume = || disk.volume.as_ref().and(device.volume.clone()).map(Key::Volume);
    let path = || path_of(disk.path.as_deref()?, device).cloned().map(Key::Path);
    let found = serial().or_else(volume).or_else(path);
    found.unwrap_or_else(|| position::key(disk, device))
}

fn only(disk: &Wanted, devices: &[Device], candidates: &[usize]) -> Result<usize, Refusal> {
    match candidates {
        [] => Err(missing(disk, devices)),
        [index] => Ok(*index),
        several => Err(ambiguous(disk, several.iter().map(|index| &devices[*index]))),
    }
}

fn refuse_double_claims(wanted: &[Wanted], devices: &[Device], found: &mut [Result<(Key, usize), Refusal>]) {
    let mut claims: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (disk, found) in wanted.iter().zip(found.iter()) {
        if let Ok((_, index)) = found {
            claims.entry(*index).or_default().push(&disk.name);
        }
    }
    for found in found {
        let Ok((_, index)) = found else { continue };
        let names = &claims[index];
        if names.len() > 1 {
            let device = &devices[*index];
            *found = Err(Refusal::new(
                RefusalKind::ClaimedTwice,
                Some(&device.id),
                format!(
                    "{} matches several declared disks: {}",
                    device.node(),
                    names.join(", ")
                ),
                "change the `match` of these disks so that each matches one device",
                vec![("names", names.join(", "))],
            ));
        }
    }
}

fn not_eligible(device: &Device, why: &str) -> Refusal {
    Refusal::new(
        RefusalKind::NotEligible,
        Some(&device.id),
        format!("{} matches, but {why}", device.node()),
        "change `match` so that it matches a secondary disk",
        vec![("why", why.to_owned())],
    )
}

fn missing(disk: &Wanted, devices: &[Device]) -> Refusal {
    // Partitions are listed only if the settings name one.
    let listed = devices
        .iter()
        .filter(|device| device.id.partition.is_some() == disk.names_partition());
    let seen: Vec<String> = listed.map(describe).collect();
    let what = if disk.names_partition() {
        "partition"
    } else {
        "disk"
    };
    let skipped = csi::skipped(disk, devices);
    let skipped: Vec<String> = skipped.iter().map(|index| describe(&devices[*index])).collect();
    let but = if skipped.is_empty() {
        String::new()
    } else {
        format!("; skipped as volumes of a CSI driver: {}", skipped.join("; "))
    };
    Refusal::new(
        RefusalKind::Missing,
        None,
        format!("no {what} matches {}{but}", disk.asked_for()),
        "attach the disk, or compare `match` with the attached disks: `virtfleet-agent disks`",
        vec![("disks", seen.join("; "))],
    )
}

fn ambiguous<'a>(disk: &Wanted, devices: impl Iterator<Item = &'a Device>) -> Refusal {
    let seen: Vec<String> = devices.map(describe).collect();
    let (what, remedy) = if disk.names_partition() {
        ("partitions", part::AMBIGUOUS)
    } else {
        (
            "disks",
            "add conditions to `match`, e.g. `path`, so that only one matches; or give the disks different serials in the VM's spec",
        )
    };
    Refusal::new(
        RefusalKind::Ambiguous,
        None,
        format!(
            "{} {what} match {}: {}",
            seen.len(),
            disk.asked_for(),
            seen.join("; ")
        ),
        remedy,
        vec![("disks", seen.join("; "))],
    )
}

fn describe(device: &Device) -> String {
    let serial = device.id.serial.as_deref().unwrap_or("none");
    let partition = device.id.partition.as_ref().map(part::describe);
    format!(
        "{} ({} bytes, serial {serial}{})",
        device.node(),
        device.id.size,
        partition.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests;
