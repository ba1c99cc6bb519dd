//! Disks: that all are there, and their bus, cache, size and queues.

use super::{
    check::{NOT_REPORTED, SpecCheck},
    value::{SpecPath, SpecValue},
};
use crate::{
    guest_hardware::{DiskAttachment, GuestDisk, GuestHardware},
    health::HealthCause,
    vmi_spec::{DiskBus, DiskSpec, VmiSpec},
};

/// Bytes of a serial that a virtio disk shows (`VIRTIO_BLK_ID_BYTES`).
const VIRTIO_SERIAL_BYTES: usize = 20;
/// How much smaller a disk may be than its volume: KubeVirt rounds images down to 1 MiB.
const SIZE_TOLERANCE_BYTES: u64 = 1 << 20;
/// Path of the list.
const DISKS: &str = "spec.domain.devices.disks";

pub(super) fn checks<'a>(spec: &'a VmiSpec, guest: &'a GuestHardware, all: &mut Vec<SpecCheck<'a>>) {
    if spec.disks.is_empty() {
        return;
    }
    all.push(count(spec, guest));
    let seen = guest.disks.as_deref().unwrap_or_default();
    for disk in spec
        .disks
        .iter()
        .filter(|disk| !disk.is_pending && !disk.is_cdrom)
    {
        let found = seen.iter().find(|one| is_same(disk, one));
        all.extend(presence(disk, found, seen));
        if let Some(found) = found {
            all.extend(bus(disk, found));
            all.extend(cache(disk, found));
            all.extend(size(disk, found));
        }
    }
    all.extend(queues(spec, guest));
}

/// Whether the guest's disk is the VMI's, by serial or by libvirt's alias. KKP sets no serial.
fn is_same(disk: &DiskSpec, seen: &GuestDisk) -> bool {
    let Some(id) = seen.id.as_deref() else {
        return false;
    };
    match disk.serial.as_deref() {
        Some(serial) => {
            let cut = &serial[..serial.floor_char_boundary(VIRTIO_SERIAL_BYTES)];
            id == serial || (id == cut && seen.attachment == Some(DiskAttachment::VirtioBlk))
        }
        None => id.strip_prefix("drive-ua-") == Some(&*disk.name),
    }
}

/// Disks that KubeVirt can have attached.
fn is_of_kubevirt(disk: &GuestDisk) -> bool {
    disk.attachment.is_some_and(|one| one != DiskAttachment::Other)
}

fn count<'a>(spec: &VmiSpec, guest: &GuestHardware) -> SpecCheck<'a> {
    let path = SpecPath::Field(DISKS);
    let pending = spec.disks.iter().filter(|disk| disk.is_pending).count();
    let ready = spec.disks.len() - pending;
    let number = |count: usize| SpecValue::Number(count as u64);
    let known = guest.disks.as_deref();
    let is_known = |disks: &&[GuestDisk]| disks.iter().all(|disk| disk.attachment.is_some());
    let Some(disks) = known.filter(is_known).filter(|_| !spec.has_more_disks) else {
        return SpecCheck::not_seen(path, number(ready), NOT_REPORTED);
    };
    let seen = disks.iter().filter(|disk| is_of_kubevirt(disk)).count();
    let agrees = (ready..=ready + pending).contains(&seen);
    if seen < ready {
        SpecCheck::new(
            path,
            number(ready),
            number(seen),
            agrees,
            "a disk of the VM is missing in the guest",
        )
        .matters(HealthCause::Vm, "DiskMissing")
    } else {
        let why = "the guest has a disk that the VMI does not have (any more)";
        SpecCheck::new(path, number(ready), number(seen), agrees, why)
    }
}

/// Only of disks with a serial: others are counted.
fn presence<'a>(
    disk: &'a DiskSpec,
    found: Option<&'a GuestDisk>,
    seen: &[GuestDisk],
) -> Option<SpecCheck<'a>> {
    let serial = disk.serial.as_deref()?;
    let path = SpecPath::Item(DISKS, &disk.name, "serial");
    let asked = SpecValue::Text(serial);
    if let Some(found) = found {
        let id = found.id.as_deref().unwrap_or_default();
        return Some(SpecCheck::new(path, asked, SpecValue::Text(id), true, ""));
    }
    // A disk whose serial the report does not have may be this one.
    let may_be = |one: &GuestDisk| one.id.is_none() && one.attachment != Some(DiskAttachment::CdRom);
    if seen.is_empty() || seen.iter().any(may_be) {
        return Some(SpecCheck::not_seen(path, asked, NOT_REPORTED));
    }
    let why = "no disk of the guest has this serial, so settings that name it find no disk";
    Some(
        SpecCheck::new(path, asked, SpecValue::Text("no disk"), false, why)
            .matters(HealthCause::Vm, "DiskMissing"),
    )
}

fn bus<'a>(disk: &'a DiskSpec, found: &GuestDisk) -> Option<SpecCheck<'a>> {
    let asked = disk.bus?;
    let path = SpecPath::Item(DISKS, &disk.name, "disk.bus");
    let agrees = |seen: DiskAttachment| match asked {
        DiskBus::Virtio => seen == DiskAttachment::VirtioBlk,
        DiskBus::Scsi => seen == DiskAttachment::VirtioScsi,
        DiskBus::Sata | DiskBus::Usb => seen == DiskAttachment::Emulated,
    };
    let value = SpecValue::Text(asked.into());
    Some(match found.attachment {
        Some(seen) => SpecCheck::new(
            path,
            value,
            SpecValue::Text(seen.as_str()),
            agrees(seen),
            "an emulated disk is many times slower than a virtio disk",
        ),
        None => SpecCheck::not_seen(path, value, NOT_REPORTED),
    })
}

fn cache<'a>(disk: &'a DiskSpec, found: &GuestDisk) -> Option<SpecCheck<'a>> {
    let asked = disk.cache.as_deref()?;
    let path = SpecPath::Item(DISKS, &disk.name, "cache");
    let write_back = match asked {
        "none" | "writeback" => true,
        "writethrough" => false,
        _ => {
            return Some(SpecCheck::not_seen(
                path,
                SpecValue::Text(asked),
                "this mode is not known",
            ));
        }
    };
    let text = |is_back: bool| if is_back { "write back" } else { "write through" };
    Some(match found.is_write_back {
        Some(seen) => SpecCheck::new(
            path,
            SpecValue::Text(asked),
            SpecValue::Text(text(seen)),
            seen == write_back,
            "the mode decides how fast and how durable a write is",
        ),
        None => SpecCheck::not_seen(path, SpecValue::Text(asked), NOT_REPORTED),
    })
}

fn size<'a>(disk: &'a DiskSpec, found: &GuestDisk) -> Option<SpecCheck<'a>> {
    let asked = disk.bytes.filter(|bytes| *bytes > 0)?;
    let path = SpecPath::Item("status.volumeStatus", &disk.name, "size");
    Some(SpecCheck::compare(
        path,
        SpecValue::Bytes(asked),
        found.bytes.map(SpecValue::Bytes),
        |_| {
            found
                .bytes
                .is_some_and(|seen| seen.saturating_add(SIZE_TOLERANCE_BYTES) >= asked)
        },
        "the volume has grown, and the guest does not see it: restart the VM",
    ))
}

/// KubeVirt gives each virtio disk a queue per vCPU. Their disks cannot be told apart without
/// serials, so the smallest number of all virtio disks counts.
fn queues<'a>(spec: &VmiSpec, guest: &GuestHardware) -> Option<SpecCheck<'a>> {
    let has_virtio = spec.disks.iter().any(|disk| disk.bus == Some(DiskBus::Virtio));
    let (topology, _) = spec.cpu.topology?;
    if !spec.block_multi_queue || !has_virtio {
        return None;
    }
    let disks = guest.disks.as_deref().unwrap_or_default().iter();
    let virtio = disks.filter(|disk| disk.attachment == Some(DiskAttachment::VirtioBlk));
    let fewest = virtio.filter_map(|disk| disk.queues).min();
    let asked = u64::from(topology.vcpus());
    Some(SpecCheck::compare(
        SpecPath::Field("spec.domain.devices.blockMultiQueue"),
        SpecValue::Number(asked),
        fewest.map(|seen| SpecValue::Number(seen.into())),
        |seen| matches!(seen, SpecValue::Number(seen) if seen >= asked),
        "a disk has fewer queues than the VM has vCPUs; vCPUs that were added get queues after a restart",
    ))
}
