//! I/O scheduler of virtio disks, if one is requested.

use super::{NicStep, Plan, RefusalKind};
use crate::{
    nic::Asked,
    virtio::{Disk, DiskKind},
};

pub(super) fn schedulers(plan: &mut Plan, asked: &Asked, disks: &[Disk]) {
    let Some(wanted) = &asked.disk_scheduler else {
        return;
    };
    let virtio = |disk: &&Disk| matches!(disk.kind, DiskKind::VirtioBlk | DiskKind::VirtioScsi);
    for disk in disks.iter().filter(virtio) {
        if disk.scheduler.as_ref() == Some(wanted) {
            continue;
        }
        if disk.schedulers.contains(wanted) {
            plan.steps.push(NicStep::SetScheduler {
                disk: disk.name.clone(),
                from: disk.scheduler.clone(),
                to: wanted.clone(),
            });
            continue;
        }
        let has = if disk.schedulers.is_empty() {
            "none that is readable".to_owned()
        } else {
            disk.schedulers.join(", ")
        };
        let message = format!(
            "the kernel has no scheduler {wanted} for {}; available: {has}",
            disk.name
        );
        let remedy = format!("modprobe {}, or set another virtio.diskScheduler", module(wanted));
        plan.refuse(RefusalKind::Unsupported, &disk.name, message, &remedy);
    }
}

/// Kernel module of a scheduler.
fn module(scheduler: &str) -> String {
    match scheduler {
        "kyber" => "kyber-iosched".to_owned(),
        other => other.to_owned(),
    }
}
