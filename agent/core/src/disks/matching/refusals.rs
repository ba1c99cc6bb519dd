//! Refusals of the matching.

use super::super::{
    device::Device,
    plan::{Refusal, RefusalKind},
    wanted::Wanted,
};
use super::{csi, part};

pub(super) fn not_eligible(device: &Device, why: &str) -> Refusal {
    Refusal::new(
        RefusalKind::NotEligible,
        Some(&device.id),
        format!("{} matches, but {why}", device.node()),
        "change `match` so that it matches a secondary disk",
        vec![("why", why.to_owned())],
    )
}

pub(super) fn missing(disk: &Wanted, devices: &[Device]) -> Refusal {
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
        format!(
            "; skipped, because they may be volumes of a CSI driver: {}",
            skipped.join("; ")
        )
    };
    Refusal::new(
        RefusalKind::Missing,
        None,
        format!("no {what} matches {}{but}", disk.conditions()),
        "attach the disk, or compare `match` with the attached disks: `virtfleet-agent disks`",
        vec![("disks", seen.join("; "))],
    )
}

pub(super) fn ambiguous<'a>(disk: &Wanted, devices: impl Iterator<Item = &'a Device>) -> Refusal {
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
            disk.conditions(),
            seen.join("; ")
        ),
        remedy,
        vec![("disks", seen.join("; "))],
    )
}

pub(super) fn describe(device: &Device) -> String {
    let serial = device.id.serial.as_deref().unwrap_or("none");
    let partition = device.id.partition.as_ref().map(part::describe);
    format!(
        "{} ({} bytes, serial {serial}{})",
        device.node(),
        device.id.size,
        partition.unwrap_or_default()
    )
}

pub(super) fn only(disk: &Wanted, devices: &[Device], candidates: &[usize]) -> Result<usize, Refusal> {
    match candidates {
        [] => Err(missing(disk, devices)),
        [index] => Ok(*index),
        several => Err(ambiguous(disk, several.iter().map(|index| &devices[*index]))),
    }
}
