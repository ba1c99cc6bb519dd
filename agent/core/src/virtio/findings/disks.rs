//! Findings about disks: number of hardware queues, and the write cache.

pub(super) use super::works::works;
use std::collections::BTreeMap;

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    view::{View, of_disk},
    words::{count, few},
};
use crate::virtio::{Disk, DiskKind, WriteCache};

pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let works = |disk: &&Disk| works(disk);
    let disks = view.machine.disks.iter().filter(works);
    let mut all: Vec<Finding> = disks.clone().filter_map(write_through).collect();
    if view.several_cpus() {
        let own = disks.clone().filter(|disk| disk.kind == DiskKind::VirtioBlk);
        all.extend(own.filter_map(|disk| queues(view, disk, None)));
        // The queues belong to the controller: one finding for all its disks.
        let mut controllers: BTreeMap<&str, Vec<&Disk>> = BTreeMap::new();
        for disk in disks.filter(|disk| disk.kind == DiskKind::VirtioScsi) {
            controllers
                .entry(disk.device.as_deref().unwrap_or_default())
                .or_default()
                .push(disk);
        }
        let on_one = controllers
            .values()
            .filter_map(|disks| Some((disks.first()?, disks)));
        all.extend(on_one.filter_map(|(first, disks)| {
            let names = few(disks.iter().map(|disk| disk.name.as_str()));
            queues(view, first, Some(names))
        }));
    }
    all
}

/// With `cache: none` QEMU uses direct I/O, and the guest sees a write-back cache. If the host's
/// filesystem does not support direct I/O, virt-launcher falls back to write-through
/// (`SetDriverCacheMode`); the VM's spec can request write-through, too.
fn write_through(disk: &Disk) -> Option<Finding> {
    let severity = match disk.kind {
        DiskKind::VirtioBlk => Severity::Warning,
        // A passed-through LUN may have a cache that survives a power cut.
        DiskKind::VirtioScsi => Severity::Info,
        _ => return None,
    };
    if disk.write_cache != Some(WriteCache::Through) {
        return None;
    }
    let message = format!(
        "{} uses write-through: each write waits until it is on the volume, and goes through the infra node's page cache",
        disk.name
    );
    Some(
        of_disk("virtio-disk-write-through", severity, disk, "WriteThrough", message)
            .with("writeCache", "write through")
            .remedy(
                "check disks[].cache in the VM's spec: none bypasses the page cache; if it is none already, \
                 the volume's filesystem does not support direct I/O: use a block volume (volumeMode: Block) or another storage class",
            ),
    )
}

fn queues(view: &View<'_>, disk: &Disk, of_controller: Option<String>) -> Option<Finding> {
    let queues = u32::try_from(disk.queues.len()).unwrap_or(u32::MAX);
    // Queues for vCPUs that are plugged in and offline are not surplus.
    let present = u32::try_from(view.machine.cpus.present.len()).unwrap_or(u32::MAX);
    if queues == 0 || (view.cpus..=present.max(view.cpus)).contains(&queues) {
        return None;
    }
    let scsi = of_controller.is_some();
    let has = format!(
        "{} has {} for {}",
        of_controller.as_deref().unwrap_or(&disk.name),
        count(queues, "queue"),
        count(view.cpus, "vCPU")
    );
    let (id, severity, reason, message) = if queues > view.cpus {
        let message = format!("{has}: the surplus queues take memory and are not used");
        ("virtio-disk-more-queues", Severity::Info, "MoreQueues", message)
    } else if queues == 1 {
        let message = format!("{has}: all vCPUs share one request queue");
        (
            "virtio-disk-fewer-queues",
            Severity::Warning,
            "SingleQueue",
            message,
        )
    } else {
        let message = format!("{has}: some vCPUs share a queue");
        ("virtio-disk-fewer-queues", Severity::Info, "FewerQueues", message)
    };
    let remedy = match (queues > view.cpus, scsi) {
        (true, _) => "none in the guest; a restart of the VM gives the disk one queue per vCPU",
        (false, false) => {
            "set spec.template.spec.domain.devices.blockMultiQueue: true in the VirtualMachine and restart it; after vCPUs were added, restart it"
        }
        (false, true) => {
            "its disks share the controller's queues; a restart of the VM gives it one per vCPU, if the machine type supports it; \
             otherwise set disks[].disk.bus: virtio, and spec.template.spec.domain.devices.blockMultiQueue: true, in the VirtualMachine and restart it"
        }
    };
    let mut finding = of_disk(id, severity, disk, reason, message)
        .with("queues", queues)
        .with("cpus", view.cpus);
    if let Some(disks) = of_controller {
        finding = finding.with("disks", disks);
    }
    Some(finding.remedy(remedy))
}
