//! Disks declared by size and order.
//!
//! A disk with the UUID that the agent assigned matches first, at any position and of any size. The
//! others are counted: `order` is a position among all disks of that size, and a disk that was
//! found by UUID leaves its position empty.

use std::collections::BTreeSet;

use super::{
    super::{
        device::{Carried, Device},
        plan::{Refusal, RefusalKind},
        uuids,
        wanted::{Key, Wanted},
    },
    csi, describe, fits, fits_but_for_size, ineligible, missing, only,
};

pub(super) struct Positions<'a> {
    wanted: &'a [Wanted],
    devices: &'a [Device],
    vm_uuid: &'a str,
    /// Devices that are not counted: those that match an identity, the disks of such partitions,
    /// and all other partitions.
    named: BTreeSet<usize>,
    /// Disks that were found by UUID, with their devices.
    by_uuid: Vec<(&'a str, usize)>,
}

impl<'a> Positions<'a> {
    pub(super) fn new(
        wanted: &'a [Wanted],
        devices: &'a [Device],
        vm_uuid: &'a str,
        named: BTreeSet<usize>,
    ) -> Self {
        let mut positions = Self {
            wanted,
            devices,
            vm_uuid,
            named,
            by_uuid: Vec::new(),
        };
        for disk in wanted.iter().filter(|disk| disk.is_positional()) {
            if let [index] = positions.carriers(disk)[..] {
                positions.by_uuid.push((&disk.name, index));
            }
        }
        positions
    }

    pub(super) fn find(&self, disk: &Wanted) -> Result<(Key, usize), Refusal> {
        match (self.carriers(disk)[..].as_ref(), self.given(disk)) {
            ([], _) => {
                let index = self.by_order(disk)?;
                Ok((key(disk, &self.devices[index]), index))
            }
            ([index], Some(uuid)) => Ok((Key::Uuid(uuid), *index)),
            (several, _) => Err(self.copies(several)),
        }
    }

    /// UUID that the agent assigns to the content of the disk.
    fn given(&self, disk: &Wanted) -> Option<String> {
        if disk.encryption.is_some() {
            uuids::luks(self.vm_uuid, &disk.name)
        } else {
            uuids::filesystem(self.vm_uuid, &disk.name)
        }
    }

    /// Devices with that UUID that meet all other conditions except the size.
    fn carriers(&self, disk: &Wanted) -> Vec<usize> {
        let Some(given) = self.given(disk) else {
            return Vec::new();
        };
        let carries = |device: &Device| {
            matches!(&device.carried, Carried::Uuid(uuid) if uuid.eq_ignore_ascii_case(&given))
                && fits_but_for_size(disk, device)
        };
        (0..self.devices.len())
            .filter(|index| !self.named.contains(index) && carries(&self.devices[*index]))
            .collect()
    }

    fn by_order(&self, disk: &Wanted) -> Result<usize, Refusal> {
        // Devices of disks that are declared alike and were found by UUID. Disks declared otherwise
        // are counted separately.
        let alike: Vec<(&Wanted, usize)> = self
            .wanted
            .iter()
            .filter(|other| is_alike(other, disk))
            .filter_map(|other| {
                let found = self.by_uuid.iter().find(|(name, _)| *name == other.name)?;
                Some((other, found.1))
            })
            .collect();
        let free = |index: &usize| {
            !self.named.contains(index)
                && alike.iter().all(|(_, taken)| taken != index)
                && ineligible(&self.devices[*index]).is_none()
        };
        let rest: Vec<usize> = (0..self.devices.len()).filter(free).collect();
        let mut pool: Vec<usize> = rest
            .iter()
            .copied()
            .filter(|index| fits(disk, &self.devices[*index]))
            .collect();
        pool.sort_by_cached_key(|index| bus_order(&self.devices[*index].syspath));
        let index = match disk.order {
            None => only(disk, self.devices, &pool)?,
            Some(order) => {
                // Earlier positions that are empty now.
                let before = alike
                    .iter()
                    .filter(|(other, _)| other.order.is_some_and(|other| other < order));
                let place = usize::try_from(order)
                    .ok()
                    .and_then(|order| order.checked_sub(before.count() + 1));
                let index = place.and_then(|place| pool.get(place)).copied();
                index.ok_or_else(|| missing(disk, self.devices))?
            }
        };
        // Another device whose content is still unknown may be the disk, also one that came later.
        let unknown = rest.iter().find(|other| {
            let device = &self.devices[**other];
            let is_foreign = !csi::is_named(disk) && csi::csi_name(device).is_some();
            **other != index && device.carried == Carried::Unknown && !is_foreign
        });
        match unknown {
            Some(unknown) => Err(undecided(disk, &self.devices[index], &self.devices[*unknown])),
            None => Ok(index),
        }
    }

    fn copies(&self, carriers: &[usize]) -> Refusal {
        let all: Vec<String> = carriers
            .iter()
            .map(|index| describe(&self.devices[*index]))
            .collect();
        Refusal::new(
            RefusalKind::DuplicateUuid,
            carriers.first().map(|index| &self.devices[*index].id),
            format!(
                "{} disks have the UUID that the agent assigned to it: {}",
                all.len(),
                all.join("; ")
            ),
            "if `btrfs filesystem show` lists both as devices of one filesystem, declare neither; else one is a copy of the other: detach it, or give it another UUID (`tune2fs -U`, `xfs_admin -U`, `btrfstune -u`)",
            vec![("disks", all.join("; "))],
        )
    }
}

pub(super) fn undecided(disk: &Wanted, device: &Device, unknown: &Device) -> Refusal {
    let reason = format!(
        "the content of {} is still unknown, and it may be the disk that was formatted for {:?}",
        unknown.node(),
        disk.name
    );
    Refusal::new(
        RefusalKind::Unreadable,
        Some(&device.id),
        format!("{} is not used by its position: {reason}", device.node()),
        "the next run probes it again: `systemctl start virtfleet-reconcile.service`; if it stays unknown, `udevadm info` and `dmesg` show why",
        vec![("reason", reason)],
    )
}

/// Whether two disks are counted together.
fn is_alike(one: &Wanted, other: &Wanted) -> bool {
    let asked = |disk: &Wanted| {
        let identity = [&disk.serial, &disk.volume, &disk.path].map(Option::clone);
        (disk.is_positional(), disk.size, identity)
    };
    asked(one) == asked(other)
}

/// Key by size and order.
pub(super) fn key(disk: &Wanted, device: &Device) -> Key {
    Key::Position {
        size: device.id.size,
        order: disk.order.unwrap_or(1),
    }
}

/// Sort key in the order of the buses: SCSI addresses (`2:0:0:10`) by number, PCI addresses by
/// text.
fn bus_order(syspath: &str) -> Vec<(Vec<u64>, String)> {
    let part = |part: &str| {
        let numbers: Option<Vec<u64>> = part.split(':').map(|number| number.parse().ok()).collect();
        match numbers {
            Some(numbers) if numbers.len() == 4 => (numbers, String::new()),
            _ => (Vec::new(), part.to_owned()),
        }
    };
    syspath.split('/').map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::select, *};
    use crate::disks::{
        device::DeviceId,
        fixtures::{GIB, VM, device, encrypted, fs_uuid, luks_uuid, positional, wanted},
    };

    fn carrying(n: u8, uuid: &str) -> Device {
        Device {
            carried: Carried::Uuid(uuid.to_owned()),
            ..device(n, None)
        }
    }

    fn grown(device: Device) -> Device {
        Device {
            id: DeviceId {
                size: 2 * GIB,
                ..device.id
            },
            ..device
        }
    }

    /// Describes how each disk was found and its device, or the refusal.
    fn found(wanted: &[Wanted], devices: &[Device]) -> Vec<String> {
        let all = select(wanted, devices, VM).into_iter();
        all.map(|selection| match selection.found {
            Ok((Key::Uuid(_), index)) => uuid(&devices[index].id.name),
            Ok((_, index)) => place(&devices[index].id.name),
            Err(refusal) => refused(refusal.kind),
        })
        .collect()
    }

    fn uuid(name: &str) -> String {
        format!("{name} by its UUID")
    }

    fn place(name: &str) -> String {
        format!("{name} by its place")
    }

    fn refused(kind: RefusalKind) -> String {
        format!("{kind:?}")
    }

    #[test]
    fn assigned_uuid_identifies_a_disk_at_any_position() {
        let [a, b] = [positional("a", 1), positional("b", 2)];
        let both = [a.clone(), b];
        let [ours_a, ours_b] = ["a", "b"].map(fs_uuid);
        // Moved, swapped, grown.
        assert_eq!(
            found(&both, &[carrying(1, &ours_a), device(2, None)]),
            [uuid("vdb"), place("vdc")]
        );
        assert_eq!(
            found(&both, &[device(1, None), carrying(2, &ours_a)]),
            [uuid("vdc"), place("vdb")]
        );
        assert_eq!(
            found(&both, &[carrying(1, &ours_b), carrying(2, &ours_a)]),
            [uuid("vdc"), uuid("vdb")]
        );
        assert_eq!(
            found(&both, &[grown(carrying(1, &ours_a)), device(2, None)]),
            [uuid("vdb"), place("vdc")]
        );
        // The second is found and the first is not: its position is still the first.
        assert_eq!(
            found(&both, &[device(1, None), carrying(2, &ours_b)]),
            [place("vdb"), uuid("vdc")]
        );
        // A disk in between that is not declared keeps its position.
        let apart = [a.clone(), positional("c", 3)];
        let devices = [carrying(1, &ours_a), device(2, None), device(3, None)];
        assert_eq!(found(&apart, &devices), [uuid("vdb"), place("vdd")]);
        // If the disk at a position is missing, the next position is empty.
        assert_eq!(
            found(&both, &[carrying(2, &ours_b)]),
            [refused(RefusalKind::Missing), uuid("vdc")]
        );
        // Disks declared otherwise are still counted.
        let slot = Wanted {
            path: Some("pci-0000:01:*".into()),
            ..a.clone()
        };
        let devices = [carrying(1, &ours_a), device(2, None)];
        assert_eq!(
            found(&[slot, both[1].clone()], &devices),
            [uuid("vdb"), place("vdc")]
        );
        // A UUID of another disk is ignored.
        assert_eq!(found(&[a], &[carrying(1, &fs_uuid("x"))]), [place("vdb")]);
    }

    #[test]
    fn container_matches_by_header_uuid() {
        let disk = Wanted {
            serial: None,
            size: Some(GIB),
            order: Some(1),
            ..encrypted("a")
        };
        let devices = [device(1, None), carrying(2, &luks_uuid("a"))];
        assert_eq!(found(std::slice::from_ref(&disk), &devices), [uuid("vdc")]);
        let devices = [device(1, None), carrying(2, &fs_uuid("a"))];
        assert_eq!(found(&[disk], &devices), [place("vdb")]);
    }

    #[test]
    fn copies_refuse_and_named_devices_are_excluded() {
        let a = positional("a", 1);
        let ours = fs_uuid("a");
        let only = std::slice::from_ref(&a);
        assert_eq!(
            found(only, &[carrying(1, &ours), carrying(2, &ours)]),
            [refused(RefusalKind::DuplicateUuid)]
        );
        let read_only = Device {
            read_only: true,
            ..carrying(1, &ours)
        };
        assert_eq!(
            found(only, &[read_only, device(2, None)]),
            [refused(RefusalKind::NotEligible)]
        );
        let named = Device {
            id: DeviceId {
                serial: Some("s-data".into()),
                ..device(1, None).id
            },
            ..carrying(1, &ours)
        };
        assert_eq!(
            found(&[wanted("data"), a.clone()], &[named, device(2, None)]),
            [place("vdb"), place("vdc")]
        );
        let elsewhere = Wanted {
            path: Some("pci-0000:02:*".into()),
            ..a
        };
        assert_eq!(
            found(&[elsewhere], &[carrying(1, &ours), device(2, None)]),
            [place("vdc")],
            "the other conditions must match"
        );
    }

    #[test]
    fn position_is_undecided_while_contents_are_unknown() {
        let unknown = |n| Device {
            carried: Carried::Unknown,
            ..device(n, None)
        };
        let a = [positional("a", 1)];
        assert_eq!(
            found(&a, &[device(1, None), grown(unknown(2))]),
            [refused(RefusalKind::Unreadable)]
        );
        // The disk's own content may be unknown; and a disk found by UUID does not depend on
        // others.
        assert_eq!(found(&a, &[unknown(1), device(2, None)]), [place("vdb")]);
        assert_eq!(
            found(&a, &[unknown(1), carrying(2, &fs_uuid("a"))]),
            [uuid("vdc")]
        );
        assert!(select(&a, &[carrying(1, &fs_uuid("a"))], "")[0].found.is_ok());
    }
}
