//! Findings for hardware that QEMU emulates instead of virtio devices.

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    disks::works,
    view::{View, of_disk, of_nic},
};
use crate::virtio::{DiskKind, NicKind};

pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let nics = view
        .machine
        .nics
        .iter()
        .filter(|nic| nic.kind == NicKind::Emulated);
    let nics = nics.map(|nic| {
        let message = format!(
            "{} is an emulated device ({}): each packet causes several VM exits, and there is one queue",
            nic.name, nic.driver
        );
        of_nic(
            "virtio-nic-emulated",
            Severity::Warning,
            nic,
            "EmulatedNic",
            message,
        )
        .with("driver", &nic.driver)
        .with("address", &nic.address)
        .remedy("set interfaces[].model: virtio in the VirtualMachine, or remove the model, and restart it")
    });
    let disks = view.machine.disks.iter();
    let disks = disks.filter(|disk| disk.kind == DiskKind::Emulated && works(disk));
    let disks = disks.map(|disk| {
        let message = format!(
            "{} is attached to an emulated controller ({}): each request causes several VM exits, and there is one queue",
            disk.name, disk.driver
        );
        of_disk("virtio-disk-emulated", Severity::Warning, disk, "EmulatedDisk", message)
            .with("driver", &disk.driver)
            .with("address", &disk.address)
            .remedy("set disks[].disk.bus: virtio in the VirtualMachine and restart it; mounts by UUID or label keep working")
    });
    nics.chain(disks).collect()
}
