//! Interrupt vectors that run out.

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    view::{View, of_vm},
    words::{few, percent},
};

/// The share in use, in percent, from which it is said: the next device that is plugged in may take as many as the largest of now.
const NEAR_PERCENT: u64 = 80;

pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let vectors = &view.machine.vectors;
    let Some(limit) = vectors.limit.filter(|limit| *limit > 0) else {
        return Vec::new();
    };
    if u64::from(vectors.used) * 100 < u64::from(limit) * NEAR_PERCENT {
        return Vec::new();
    }
    let mut largest: Vec<&(String, u32)> = vectors.by_device.iter().collect();
    largest.sort_by_key(|one| std::cmp::Reverse(one.1));
    let message = format!(
        "{} of about {limit} interrupt vectors are in use: devices that come now may get one for all their queues, or none",
        vectors.used
    );
    let finding = of_vm(
        "virtio-vectors-near-limit",
        Severity::Warning,
        "interrupts",
        "VectorsNearLimit",
        message,
    )
    .with("used", vectors.used)
    .with("limit", limit)
    .with("share", percent(vectors.used.into(), limit.into()))
    .with(
        "largest",
        few(largest.iter().map(|(address, count)| format!("{address}: {count}"))),
    )
    .remedy("give the VM fewer devices, or fewer queues each; virtio-scsi carries many disks with the vectors of one device");
    vec![finding]
}
