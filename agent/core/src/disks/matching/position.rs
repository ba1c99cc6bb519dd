//! Disks that are asked for by size and order.
//!
//! The disk on which the UUID is that we gave is the one, wherever it is and however it has grown. The others are counted: `order` is a place among all disks
//! of that size, and what was found by its UUID leaves its place empty.

use std::collections::BTreeSet;

use super::{
    super::{
        device::{Carried, Device},
        plan::{Refusal, RefusalKind},
        uuids,
        wanted::{Key, Wanted},
    },
    csi::is_excluded,
    describe, fits, fits_but_for_size, ineligible, missing, only,
};

pub(super) struct Positions<'a> {
    wanted: &'a [Wanted],
    devices: &'a [Device],
    vm_uuid: &'a str,
    /// What is not counted: what an identity fits, its disk where that is a partition, and every other partition.
    named: BTreeSet<usize>,
    /// Names that were found by UUID, each with its device.
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

    /// The UUID that we give what is on the disk itself.
    fn given(&self, disk: &Wanted) -> Option<String> {
        if disk.encryption.is_some() {
            uuids::luks(self.vm_uuid, &disk.name)
        } else {
            uuids::filesystem(self.vm_uuid, &disk.name)
        }
    }

    /// The devices that carry it. Of the rest that is asked for all must fit, but for the size.
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
        // What others have found that are asked for alike. Whoever asks otherwise counts otherwise.
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
                // The places before it that are empty now.
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
        // It may be one of which nobody knows yet what is on it.
        let unknown = rest.iter().find(|other| {
            let device = &self.devices[**other];
            **other != index && device.carried == Carried::Unknown && !is_excluded(disk, device)
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
                "{} disks have the UUID that we gave it: {}",
                all.len(),
                all.join("; ")
            ),
            "one is a copy of the other: detach it, or give it a UUID of its own (`tune2fs -U`, `xfs_admin -U`, `btrfstune -u`)",
            vec![("disks", all.join("; "))],
        )
    }
}

fn undecided(disk: &Wanted, device: &Device, unknown: &Device) -> Refusal {
    let reason = format!(
        "what is on {} is not known yet, and it may be the disk that was made for {:?}",
        unknown.node(),
        disk.name
    );
    Refusal::new(
        RefusalKind::Unreadable,
        Some(&device.id),
        format!("{} is not taken by its position: {reason}", device.node()),
        "it is looked at again at the next pass: `systemctl start virtfleet-reconcile.service`; if it stays so, `udevadm info` and `dmesg` say why",
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

/// By size and order.
pub(super) fn key(disk: &Wanted, device: &Device) -> Key {
    Key::Position {
        size: device.id.size,
        order: disk.order.unwrap_or(1),
    }
}

/// Sorts as the buses count: SCSI addresses (`2:0:0:10`) by number, PCI addresses by their fixed width.
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

    /// How each is found, and the device; or why not.
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
    fn our_uuid_finds_a_disk_wherever_it_is_and_the_others_keep_their_places() {
        let [a, b] = [positional("a", 1), positional("b", 2)];
        let both = [a.clone(), b];
        let [ours_a, ours_b] = ["a", "b"].map(fs_uuid);
        // Moved, exchanged, grown.
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
        // The second is found and the first is not: its place is still the first.
        assert_eq!(
            found(&both, &[device(1, None), carrying(2, &ours_b)]),
            [place("vdb"), uuid("vdc")]
        );
        // A disk in between that nobody declares keeps its place, too.
        let apart = [a.clone(), positional("c", 3)];
        let devices = [carrying(1, &ours_a), device(2, None), device(3, None)];
        assert_eq!(found(&apart, &devices), [uuid("vdb"), place("vdd")]);
        // Without the disk that was there the place of the next is empty.
        assert_eq!(
            found(&both, &[carrying(2, &ours_b)]),
            [refused(RefusalKind::Missing), uuid("vdc")]
        );
        // Who asks for something else, too, is counted as ever.
        let slot = Wanted {
            path: Some("pci-0000:01:*".into()),
            ..a.clone()
        };
        let devices = [carrying(1, &ours_a), device(2, None)];
        assert_eq!(
            found(&[slot, both[1].clone()], &devices),
            [uuid("vdb"), place("vdc")]
        );
        // Another's UUID says nothing.
        assert_eq!(found(&[a], &[carrying(1, &fs_uuid("x"))]), [place("vdb")]);
    }

    #[test]
    fn a_container_is_found_by_its_header() {
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
    fn copies_refuse_and_what_another_identity_names_is_out_of_reach() {
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
            "what else is asked for must fit"
        );
    }

    #[test]
    fn a_position_is_not_taken_while_another_may_be_the_disk() {
        let unknown = |n| Device {
            carried: Carried::Unknown,
            ..device(n, None)
        };
        let a = [positional("a", 1)];
        assert_eq!(
            found(&a, &[device(1, None), grown(unknown(2))]),
            [refused(RefusalKind::Unreadable)]
        );
        // It is looked at itself; and what is found by its UUID needs nobody else.
        assert_eq!(found(&a, &[unknown(1), device(2, None)]), [place("vdb")]);
        assert_eq!(
            found(&a, &[unknown(1), carrying(2, &fs_uuid("a"))]),
            [uuid("vdc")]
        );
        assert!(select(&a, &[carrying(1, &fs_uuid("a"))], "")[0].found.is_ok());
    }
}
