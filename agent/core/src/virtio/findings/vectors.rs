//! Finding for interrupt vectors that run out.

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    view::{View, of_vm},
    words::{few, percent},
};

/// Percentage of vectors in use from which it is reported: the next device may need as many as the
/// largest one.
const WARN_PERCENT: u64 = 80;

pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let vectors = &view.machine.vectors;
    let Some(limit) = vectors.limit.filter(|limit| *limit > 0) else {
        return Vec::new();
    };
    if u64::from(vectors.used) * 100 < u64::from(limit) * WARN_PERCENT {
        return Vec::new();
    }
    let mut largest: Vec<&(String, u32)> = vectors.by_device.iter().collect();
    largest.sort_by_key(|one| std::cmp::Reverse(one.1));
    let message = format!(
        "{} of about {limit} interrupt vectors are in use: new devices may get one for all their queues, or none",
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
    .remedy("reduce the VM's devices, or their queues; virtio-scsi supports many disks with the vectors of one device");
    vec![finding]
}
