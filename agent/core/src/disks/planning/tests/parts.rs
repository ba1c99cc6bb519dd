//! Disks that are named partitions.

use super::{
    plain::{MAKE, NONE, TAKE},
    *,
};
use crate::disks::{
    device::{Device, Use},
    journal::Progress,
    partition::Partition,
    probe::Probe,
    wanted::Key,
};

const UUID: &str = "436278e6-ec18-6147-b5fb-95b948393267";

fn disk() -> Wanted {
    Wanted {
        serial: None,
        part_uuid: Some(UUID.into()),
        ..wanted("data")
    }
}

/// A partition of the system disk.
fn vda3() -> Device {
    let root = Device {
        carries_system: true,
        uses: vec![Use::Partition("vda1".into()), Use::Mounted("/".into())],
        ..device(0, Some("root"))
    };
    partition(&root, 3, UUID, "blank")
}

fn with(change: impl FnOnce(&mut Partition)) -> Device {
    let mut device = vda3();
    change(device.id.partition.as_mut().unwrap());
    device
}

fn world(device: Device, probe: Probe) -> Seen {
    let root = Device {
        carries_system: true,
        ..super::super::super::fixtures::device(0, Some("root"))
    };
    seen(&[disk()], vec![root, device], vec![("data", probe)])
}

#[test]
fn partition_is_planned_like_a_disk() {
    use RefusalKind::{BlankAgain, ForeignData, InUse, UnknownData};
    let was = |progress| {
        let entry = crate::disks::journal::Entry {
            key: Key::PartUuid(UUID.into()),
            ..entry("data", &vda3(), progress)
        };
        vec![entry]
    };
    for (device, probe, entries, steps, refused) in [
        (vda3(), blank(), vec![], &MAKE[..], None),
        (vda3(), blank(), was(Progress::Intended), &MAKE[..], None),
        (vda3(), blank(), was(Progress::Used), &NONE[..], Some(BlankAgain)),
        (vda3(), data("ext4", Some(FOREIGN)), vec![], &TAKE[..], None),
        (vda3(), data("vfat", None), vec![], &NONE[..], Some(ForeignData)),
        (vda3(), data("", None), vec![], &NONE[..], Some(UnknownData)),
        (
            Device {
                uses: vec![Use::Holder("dm-0".into())],
                ..vda3()
            },
            blank(),
            vec![],
            &NONE[..],
            Some(InUse),
        ),
    ] {
        let plan = one(&disk(), &world(device, probe.clone()), &journal(entries));
        assert_eq!((&words(&plan)[..], refusal(&plan)), (steps, refused), "{probe:?}");
    }
    // Recreated at another position, it is another partition, and the journal's intent does not
    // apply.
    let moved = with(|partition| partition.start += 512);
    let plan = one(&disk(), &world(moved, blank()), &journal(was(Progress::Intended)));
    assert_eq!(refusal(&plan), Some(BlankAgain));
}

#[test]
fn partition_table_and_type_must_match() {
    let stale = Device {
        fault: Some("the table on the disk differs".into()),
        ..vda3()
    };
    let esp = with(|partition| partition.kind = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b".into());
    let required = with(|partition| partition.attributes = 1);
    for device in [stale, esp, required] {
        for probe in [blank(), data("ext4", Some(FOREIGN))] {
            let plan = one(&disk(), &world(device.clone(), probe), &journal(vec![]));
            assert_eq!(
                (&words(&plan)[..], refusal(&plan)),
                (&NONE[..], Some(RefusalKind::NotEligible)),
                "{device:?}"
            );
        }
        // A mounted partition stays mounted, and a note reports the problem.
        let mut world = world(device.clone(), data("ext4", Some(FOREIGN)));
        world.mounts.push(crate::disks::seen::Mounted {
            mount_point: "/mnt/data".into(),
            number: device.id.number,
            root: "/".into(),
            filesystem: "ext4".into(),
            options: vec!["rw".into()],
            filesystem_bytes: None,
            owner: None,
        });
        let plan = one(&disk(), &world, &journal(vec![]));
        assert_eq!((refusal(&plan), plan.notes.len()), (None, 1), "{plan:?}");
        // It grows only if kernel and table agree on its end.
        let disk = Wanted { grow: true, ..disk() };
        world.mounts[0].filesystem_bytes = Some(device.id.size / 2);
        let plan = one(&disk, &world, &journal(vec![]));
        let grows = words(&plan).contains(&"grow");
        assert_eq!(grows, device.fault.is_none(), "{plan:?}");
    }
}

#[test]
fn evidence_names_the_partition() {
    let hash = |device: Device| {
        let plan = one(&disk(), &world(device, data("", None)), &journal(vec![]));
        plan.refusals[0].evidence.clone()
    };
    let here = hash(vda3());
    let renamed = Device {
        id: crate::disks::DeviceId {
            name: "vdb3".into(),
            ..vda3().id
        },
        ..vda3()
    };
    assert_eq!(here, hash(with(|partition| partition.index = 4)));
    assert_ne!(
        here,
        crate::disks::plan::evidence_hash(
            RefusalKind::UnknownData,
            &crate::disks::DeviceId {
                partition: None,
                ..renamed.id
            },
            &[
                ("digest".into(), "d1".into()),
                ("firstByte".into(), "4096".into())
            ],
        )
    );
}
