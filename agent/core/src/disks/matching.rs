//! Matches declared disks with devices.
//!
//! Disks with an identity (serial, volume, path) are matched first. Devices that match any identity
//! are not available to disks declared by size and order ([`position`]). A device is never assigned
//! to two disks, and what may be the volume of a CSI driver only to a disk that names it ([`csi`]).
//!
//! A partition matches only settings that name a partition (`partUuid`, `partLabel`), and these
//! match nothing else ([`part`]).

#![expect(clippy::result_large_err, reason = "at most one refusal per disk and run")]

pub mod csi;
mod eligible;
mod fit;
mod late;
mod named;
mod part;
mod position;
mod refusals;

pub use eligible::ineligible;
pub use fit::seen_serial;
use fit::{fits, fits_but_for_size, fits_what_is_named, path_of};
use refusals::only;
use refusals::{describe, missing, not_eligible};
use std::collections::{BTreeMap, BTreeSet};

use super::{
    device::Device,
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
    let mut selections = select_known(wanted, devices, vm_uuid);
    if devices.iter().any(|device| device.came_later) {
        let mut all = devices.to_vec();
        for device in &mut all {
            device.came_later = false;
        }
        let otherwise = select_known(wanted, &all, vm_uuid).into_iter();
        late::explain(
            wanted,
            devices,
            otherwise.map(|selection| selection.found.ok().map(|(_, index)| index)),
            selections.iter_mut().map(|selection| &mut selection.found),
        );
    }
    selections
}

fn select_known(wanted: &[Wanted], devices: &[Device], vm_uuid: &str) -> Vec<Selection> {
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

/// Returns the devices whose UUID must be known: those that could match a disk that is not named.
/// The UUID identifies a disk that was declared by size and order, and one that came later.
pub fn by_position(wanted: &[Wanted], devices: &[Device]) -> BTreeSet<usize> {
    let unnamed = |disk: &&Wanted| !csi::is_named(disk);
    if !wanted.iter().any(|disk| disk.is_positional() || unnamed(&disk)) {
        return BTreeSet::new();
    }
    let by_identity = by_identity(wanted, devices);
    let uncounted = uncounted(&by_identity, devices);
    let positional = |index: &usize| {
        let mut positional = wanted.iter().filter(|disk| disk.is_positional());
        !uncounted.contains(index) && positional.any(|disk| !csi::is_excluded(disk, &devices[*index]))
    };
    let matched = wanted.iter().zip(&by_identity).filter(|(disk, _)| unnamed(disk));
    matched
        .flat_map(|(_, candidates)| candidates.iter().copied())
        .chain((0..devices.len()).filter(positional))
        .filter(|index| ineligible(&devices[*index]).is_none())
        .collect()
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

#[cfg(test)]
mod tests;
