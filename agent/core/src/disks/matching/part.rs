//! Partitions that the settings name by PARTUUID or PARTLABEL.

use super::{
    super::{
        device::Device,
        partition::Partition,
        plan::{Refusal, RefusalKind},
        wanted::{Key, Wanted},
    },
    fits,
};

/// Remedy if several partitions match.
pub(super) const AMBIGUOUS: &str = "copies of a disk carry the same PARTUUIDs and PARTLABELs: add the disk's `serial` or `path` to `match`; or \
     detach the copy, or give the partition another PARTUUID (`sfdisk --part-uuid`)";

/// Returns the index of the disk of a partition.
pub(super) fn disk_of(partition: &Device, devices: &[Device]) -> Option<usize> {
    let disk = partition.id.disk();
    devices
        .iter()
        .position(|device| device.id.partition.is_none() && device.id.name == disk)
}

/// Whether the rest of `match` is met by the disk of the partition.
pub(super) fn disk_fits(disk: &Wanted, partition: &Device, devices: &[Device]) -> bool {
    disk_of(partition, devices).is_some_and(|index| fits(disk, &devices[index]))
}

/// Describes how a partition differs from others.
pub(super) fn describe(partition: &Partition) -> String {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let label = partition.label.as_ref();
    let label = label.map_or(String::new(), |label| format!(", PARTLABEL {label}"));
    format!(", PARTUUID {}{label}", or_none(&partition.uuid))
}

/// Refuses while the table entry of a partition is unknown that could be the named one, or a second
/// one with that name.
pub(super) fn all_known(disk: &Wanted, devices: &[Device]) -> Result<(), Refusal> {
    let unknown = devices.iter().find(|device| {
        let partition = device.id.partition.as_ref();
        partition.is_some_and(|partition| partition.uuid.is_none()) && disk_fits(disk, device, devices)
    });
    let Some(unknown) = unknown else { return Ok(()) };
    let (node, disk) = (unknown.node(), unknown.id.disk());
    let why = unknown
        .fault
        .clone()
        .unwrap_or_else(|| "udev has not read its partition table entry yet".to_owned());
    Err(Refusal::new(
        RefusalKind::Unreadable,
        Some(&unknown.id),
        format!("the PARTUUID of {node} is unknown, and it may be the named partition: {why}"),
        format!(
            "the next run reads it again: `systemctl start virtfleet-reconcile.service`. If it stays unknown, compare \
             `sfdisk --dump /dev/{disk}` with `lsblk /dev/{disk}`, and make the kernel read the table again \
             (`partx --update /dev/{disk}`, or a reboot)"
        ),
        vec![("partition", node), ("why", why)],
    ))
}

/// Refuses a whole disk and one of its partitions if two declared disks claim them.
pub(super) fn refuse_disk_and_partition(
    wanted: &[Wanted],
    devices: &[Device],
    by_identity: &[Vec<usize>],
    found: &mut [Result<(Key, usize), Refusal>],
) {
    let claimed: Vec<Option<usize>> = found
        .iter()
        .map(|found| found.as_ref().ok().map(|(_, index)| *index))
        .collect();
    for at in 0..wanted.len() {
        let Some(partition) = claimed[at].filter(|index| devices[*index].id.partition.is_some()) else {
            continue;
        };
        let Some(disk) = disk_of(&devices[partition], devices) else {
            continue;
        };
        let claims_disk =
            |other: &usize| claimed[*other] == Some(disk) || by_identity[*other].contains(&disk);
        for other in (0..wanted.len()).filter(claims_disk) {
            let names = [wanted[at].name.as_str(), wanted[other].name.as_str()].join(", ");
            let refusal = |device: &Device| {
                Refusal::new(
                    RefusalKind::ClaimedTwice,
                    Some(&device.id),
                    format!(
                        "{} is a partition of {}, and two declared disks claim both: {names}",
                        devices[partition].node(),
                        devices[disk].node()
                    ),
                    "change `match` so that either the whole disk or its partitions are declared",
                    vec![("names", names.clone())],
                )
            };
            found[at] = Err(refusal(&devices[partition]));
            if found[other].is_ok() {
                found[other] = Err(refusal(&devices[disk]));
            }
        }
    }
}

#[cfg(test)]
mod tests;
