use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    super::{Selection, by_position, select},
    *,
};
use crate::disks::{
    device::{Carried, DevNumber, DeviceId},
    fixtures::{GIB, VM, device, partition, positional, wanted},
};

const UUID: &str = "436278e6-ec18-6147-b5fb-95b948393267";

fn by_uuid(name: &str, uuid: &str) -> Wanted {
    Wanted {
        serial: None,
        part_uuid: Some(uuid.into()),
        ..wanted(name)
    }
}

fn by_label(name: &str, label: &str) -> Wanted {
    Wanted {
        serial: None,
        part_label: Some(label.into()),
        ..wanted(name)
    }
}

/// Result of matching a declared disk.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    Device(String),
    Refused(RefusalKind),
}

fn found(wanted: &[Wanted], devices: &[Device]) -> Vec<Found> {
    let name = |selection: Selection| match selection.found {
        Ok((_, index)) => is(&devices[index].id.name),
        Err(refusal) => Found::Refused(refusal.kind),
    };
    select(wanted, devices, VM).into_iter().map(name).collect()
}

fn is(name: &str) -> Found {
    Found::Device(name.to_owned())
}

#[test]
fn partition_matches_only_by_part_uuid_or_part_label() {
    let disk = device(1, Some("s-data"));
    let parts = [
        partition(&disk, 1, "aa", "esp"),
        partition(&disk, 2, UUID, "blank"),
    ];
    let devices = [vec![disk], parts.to_vec()].concat();
    assert_eq!(found(&[by_uuid("a", UUID)], &devices), [is("vdb2")]);
    assert_eq!(found(&[by_label("a", "blank")], &devices), [is("vdb2")]);
    assert_eq!(found(&[by_label("a", "esp")], &devices), [is("vdb1")]);
    assert_eq!(
        found(&[by_label("a", "other")], &devices),
        [Found::Refused(RefusalKind::Missing)]
    );
    let both = Wanted {
        part_label: Some("esp".into()),
        ..by_uuid("a", UUID)
    };
    assert_eq!(
        found(&[both], &devices),
        [Found::Refused(RefusalKind::Missing)],
        "both must match"
    );
    assert_eq!(
        found(&[wanted("data")], &devices),
        [is("vdb")],
        "the serial belongs to the disk"
    );
    let keys = |wanted: Wanted| select(&[wanted], &devices, VM).remove(0).found.unwrap().0;
    assert_eq!(keys(by_uuid("a", UUID)), Key::PartUuid(UUID.into()));
    assert_eq!(keys(by_label("a", "blank")), Key::PartLabel("blank".into()));
}

#[test]
fn copied_partitions_are_ambiguous_without_the_disk() {
    let [one, two] = [device(1, Some("s-one")), device(2, Some("s-two"))];
    let devices = [
        partition(&one, 1, UUID, "blank"),
        partition(&two, 1, UUID, "blank"),
        one,
        two,
    ];
    for asked in [by_uuid("a", UUID), by_label("a", "blank")] {
        let selection = select(std::slice::from_ref(&asked), &devices, VM).remove(0);
        let refusal = selection.found.unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Ambiguous);
        assert!(
            refusal.message.contains("vdb1") && refusal.message.contains("vdc1"),
            "{refusal:?}"
        );
        let narrowed = |change: fn(Wanted) -> Wanted| found(&[change(asked.clone())], &devices);
        assert_eq!(
            narrowed(|disk| Wanted {
                serial: Some("s-two".into()),
                ..disk
            }),
            [is("vdc1")]
        );
        assert_eq!(
            narrowed(|disk| Wanted {
                path: Some("pci-0000:01:*".into()),
                ..disk
            }),
            [is("vdb1")]
        );
        assert_eq!(
            narrowed(|disk| Wanted {
                size: Some(2 * GIB),
                ..disk
            }),
            [Found::Refused(RefusalKind::Missing)],
            "the size belongs to the disk"
        );
    }
}

#[test]
fn partition_of_the_system_disk_can_be_used() {
    let disk = Device {
        carries_system: true,
        ..device(0, None)
    };
    let root = Device {
        carries_system: true,
        ..partition(&disk, 1, "aa", "root")
    };
    let small = partition(&disk, 2, "bb", "small");
    let small = Device {
        id: DeviceId {
            size: 1 << 20,
            ..small.id.clone()
        },
        ..small
    };
    let devices = [disk.clone(), root, small, partition(&disk, 3, UUID, "blank")];
    let asked = [
        by_label("a", "root"),
        by_label("b", "small"),
        by_label("c", "blank"),
    ];
    let no = Found::Refused(RefusalKind::NotEligible);
    assert_eq!(found(&asked, &devices), [no.clone(), no, is("vda3")]);
}

#[test]
fn disk_and_its_partition_cannot_both_be_claimed() {
    let [disk, other] = [device(1, Some("s-data")), device(2, None)];
    let devices = [disk.clone(), partition(&disk, 1, UUID, "blank"), other];
    let twice = Found::Refused(RefusalKind::ClaimedTwice);
    assert_eq!(
        found(&[wanted("data"), by_uuid("a", UUID)], &devices),
        [twice.clone(), twice.clone()]
    );
    assert_eq!(
        found(&[by_uuid("a", UUID), by_label("b", "blank")], &devices),
        [twice.clone(), twice.clone()]
    );
    // Two disks with one serial: the disk is refused for that, and its partition is refused, too.
    let copies = [device(1, Some("s-data")), device(2, Some("s-data"))];
    let devices = [
        copies[0].clone(),
        partition(&copies[0], 1, UUID, "blank"),
        copies[1].clone(),
    ];
    assert_eq!(
        found(&[wanted("data"), by_uuid("a", UUID)], &devices),
        [Found::Refused(RefusalKind::Ambiguous), twice]
    );
}

#[test]
fn order_ignores_disks_of_named_partitions() {
    let [disk, other] = [device(1, None), device(2, None)];
    let devices = [disk.clone(), partition(&disk, 1, UUID, "blank"), other];
    let asked = [positional("p", 1), by_uuid("a", UUID)];
    assert_eq!(found(&asked, &devices), [is("vdc"), is("vdb1")]);
    assert_eq!(
        found(&asked[..1], &devices),
        [is("vdb")],
        "it is counted if no disk names its partition"
    );
    assert_eq!(by_position(&asked, &devices), [2].into());
}

#[test]
fn unread_partition_table_refuses() {
    let [disk, other] = [device(1, Some("s-one")), device(2, Some("s-two"))];
    let mut late = partition(&other, 1, UUID, "blank");
    if let Some(partition) = &mut late.id.partition {
        partition.uuid = None;
        partition.label = None;
    }
    let devices = [disk.clone(), partition(&disk, 1, UUID, "blank"), other, late];
    assert_eq!(
        found(&[by_uuid("a", UUID)], &devices),
        [Found::Refused(RefusalKind::Unreadable)]
    );
    let narrowed = Wanted {
        serial: Some("s-one".into()),
        ..by_uuid("a", UUID)
    };
    assert_eq!(
        found(&[narrowed], &devices),
        [is("vdb1")],
        "it cannot be the other disk"
    );
}

fn any_disk() -> impl Strategy<Value = (Device, u8)> {
    let named = prop::option::of("s-[abc]");
    (named, prop::bool::weighted(0.2), 0_u8..4, 1_u64..3, 0_u8..3).prop_map(
        |(serial, carries_system, parts, size, carried)| {
            let device = device(1, serial.as_deref());
            let carried = match carried {
                0 => Carried::Unknown,
                1 => Carried::Nothing,
                _ => Carried::Uuid(crate::disks::fixtures::fs_uuid("d")),
            };
            let id = DeviceId {
                size: size * GIB,
                ..device.id
            };
            let device = Device {
                id,
                carries_system,
                carried,
                ..device
            };
            (device, parts)
        },
    )
}

fn any_whole() -> impl Strategy<Value = Wanted> {
    prop_oneof![
        "[abc]".prop_map(|name| wanted(&name)),
        ("[def]", 1_u32..4, 1_u64..3).prop_map(|(name, order, size)| Wanted {
            size: Some(size * GIB),
            ..positional(&name, order)
        }),
        ("[ghi]", 0_u8..9).prop_map(|(name, n)| Wanted {
            serial: None,
            path: Some(format!("pci-0000:{n:02x}:*")),
            ..wanted(&name)
        }),
        "[jkl]".prop_map(|name| Wanted {
            order: None,
            ..positional(&name, 1)
        }),
    ]
}

proptest! {
    /// If no disk names a partition, all selections are equal with and without partitions.
    #[test]
    fn partitions_do_not_affect_whole_disks(
        wanted in prop::collection::vec(any_whole(), 0..6),
        disks in prop::collection::btree_map(0_u8..9, any_disk(), 0..6),
    ) {
        let disks: BTreeMap<u8, (Device, u8)> = disks;
        let mut all = Vec::new();
        let mut parts = Vec::new();
        for (n, (other, count)) in disks {
            let named = device(n, other.id.serial.as_deref());
            let id = DeviceId { size: other.id.size, ..named.id };
            let disk = Device { id, carries_system: other.carries_system, carried: other.carried, ..named };
            for index in 1..=u32::from(count) {
                let part = partition(&disk, index, UUID, "blank");
                parts.push(Device { carried: disk.carried.clone(), ..part });
            }
            all.push(disk);
        }
        let before = select(&wanted, &all, VM);
        let positions = by_position(&wanted, &all);
        all.extend(parts);
        prop_assert_eq!(select(&wanted, &all, VM), before);
        prop_assert_eq!(by_position(&wanted, &all), positions);
    }
}

#[test]
fn moved_or_recreated_partition_is_different() {
    let disk = device(1, Some("s-data"));
    let before = partition(&disk, 1, UUID, "blank").id;
    let changed = |change: fn(&mut DeviceId)| {
        let mut now = before.clone();
        change(&mut now);
        before.may_have_become(&now)
    };
    assert!(changed(|_| {}));
    assert!(changed(|now| now.size += GIB));
    assert!(changed(|now| now.number = DevNumber { major: 259, minor: 9 }));
    assert!(!changed(|now| now.size -= 512));
    assert!(!changed(|now| now.serial = None));
    assert!(!changed(|now| now.partition = None));
    assert!(!changed(|now| now.partition.as_mut().unwrap().start += 512));
    assert!(!changed(
        |now| now.partition.as_mut().unwrap().uuid = Some("aa".into())
    ));
}
