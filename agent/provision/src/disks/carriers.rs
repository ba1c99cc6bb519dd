//! Which UUID is on which disk.

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

/// Without udev, asks blkid of each disk that could be one that is asked for by size and order: which it is, its UUID says.
pub(super) fn ask(provisioner: &DiskProvisioner<'_>, wanted: &[Wanted], devices: &mut [Device]) {
    // udev is there, and not done with one of them: that is waited for.
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

/// What udev knows of each device.
pub(super) fn of_udev(devices: &[Device]) -> BTreeMap<DevNumber, String> {
    let known = devices.iter().filter_map(|device| match &device.carried {
        Carried::Uuid(uuid) => Some((device.id.number, uuid.clone())),
        Carried::Unknown | Carried::Nothing => None,
    });
    known.collect()
}

/// Who carries which UUID. Without udev each device that is not declared is asked, unless everything is in place already.
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
    // A disk that does not answer has one reader, and no other is set on it.
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
