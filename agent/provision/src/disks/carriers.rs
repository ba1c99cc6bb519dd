//! Finds which disk has which UUID.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use virtfleet_agent_core::disks::{
    Carried, Device, DeviceId, Probe, Wanted,
    device::DevNumber,
    matching::{self, Selection},
};
use virtfleet_agent_host::disks::tools::blkid;

use super::provisioner::DiskProvisioner;

/// Without udev: runs blkid on each disk that could match a declaration by size, order or path. The
/// UUID identifies the disk.
pub(super) fn ask(provisioner: &DiskProvisioner<'_>, wanted: &[Wanted], devices: &mut [Device]) {
    // udev runs and has not finished with one of them: the run waits for udev.
    if devices.iter().any(|device| device.carried != Carried::Unknown) {
        return;
    }
    for index in matching::by_position(wanted, devices) {
        let device = &mut devices[index];
        match blkid::probe(provisioner.commands, &node(provisioner, device)) {
            Ok(Some(known)) => device.carried = known.uuid.map_or(Carried::Nothing, Carried::Uuid),
            Ok(None) => device.carried = Carried::Nothing,
            Err(doubt) => tracing::warn!(
                device = device.id.name,
                doubt.reason,
                "what is on it is not known"
            ),
        }
    }
}

fn node(provisioner: &DiskProvisioner<'_>, device: &Device) -> PathBuf {
    provisioner.roots.root(device.node())
}

/// The UUID of each device in udev's database.
pub(super) fn of_udev(devices: &[Device]) -> BTreeMap<DevNumber, String> {
    let known = devices.iter().filter_map(|device| match &device.carried {
        Carried::Uuid(uuid) => Some((device.id.number, uuid.clone())),
        Carried::Unknown | Carried::Nothing => None,
    });
    known.collect()
}

/// The devices of each UUID. Without udev, blkid reads each device that is not declared, unless
/// everything is already in place.
pub(super) fn all(
    provisioner: &DiskProvisioner<'_>,
    devices: &[Device],
    probes: &BTreeMap<String, Probe>,
    selections: &[Selection],
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
    // A disk that does not answer already has one reader; do not start another one.
    let mut silent = BTreeSet::new();
    for selection in selections {
        let Ok((_, index)) = &selection.found else {
            continue;
        };
        match probes.get(&selection.name) {
            Some(Probe::HasData(content)) => {
                asked.insert(devices[*index].id.number);
                if let Some(uuid) = &content.uuid {
                    add(uuid, &devices[*index].id);
                }
            }
            Some(Probe::Unknown(doubt)) if doubt.passing => drop(silent.insert(devices[*index].id.number)),
            _ => {}
        }
    }
    let udev = of_udev(devices);
    for device in devices.iter().filter(|device| !asked.contains(&device.id.number)) {
        let number = device.id.number;
        match udev.get(&number) {
            Some(uuid) => add(uuid, &device.id),
            None if settled || device.carries_system || !udev.is_empty() || silent.contains(&number) => {}
            None => {
                if let Ok(Some(known)) = blkid::probe(provisioner.commands, &node(provisioner, device))
                    && let Some(uuid) = known.uuid
                {
                    add(&uuid, &device.id);
                }
            }
        }
    }
    uuids
}
