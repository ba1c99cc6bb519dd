//! Refusals of disks that would have been matched if they had been there in the first boot.

use super::{
    super::{
        device::{Carried, Device},
        known::address,
        plan::{Refusal, RefusalKind},
        wanted::{Key, Wanted},
    },
    describe, position,
};

/// Replaces the refusal that no disk matches by one that names the disk which would have matched
/// otherwise.
pub(super) fn explain<'a>(
    wanted: &[Wanted],
    devices: &[Device],
    otherwise: impl Iterator<Item = Option<usize>>,
    found: impl Iterator<Item = &'a mut Result<(Key, usize), Refusal>>,
) {
    for ((disk, otherwise), found) in wanted.iter().zip(otherwise).zip(found) {
        let is_missing = matches!(found, Err(refusal) if refusal.kind == RefusalKind::Missing);
        let device = otherwise.map(|index| &devices[index]);
        if let Some(device) = device.filter(|device| is_missing && device.came_later) {
            *found = Err(match device.carried {
                // It may carry the UUID that the agent has given to this disk.
                Carried::Unknown => position::undecided(disk, device, device),
                Carried::Uuid(_) | Carried::Nothing => came_later(disk, device),
            });
        }
    }
}

fn came_later(disk: &Wanted, device: &Device) -> Refusal {
    Refusal::new(
        RefusalKind::CameLater,
        Some(&device.id),
        format!(
            "{} matches {}, but it is not on the list of the disks that the VM had in its first boot: it may be a volume that a CSI \
             driver formats",
            describe(device),
            disk.conditions()
        ),
        format!(
            "if it belongs to a PVC, nothing. If it is the declared disk, name it in the settings by `match.serial` or \
             `match.volume`; or `virtfleet-agent disks approve {} --evidence` with the evidence of this refusal",
            disk.name
        ),
        vec![("address", address(device))],
    )
}
