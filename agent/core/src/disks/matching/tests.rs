use proptest::prelude::*;

use super::{super::device::MIN_DISK_BYTES, named::glob, *};
use crate::disks::{
    device::{Bus, Carried, Device, DeviceId},
    fixtures::{GIB, VM, device, positional, wanted},
};

fn found(wanted: &[Wanted], devices: &[Device]) -> Vec<Result<usize, RefusalKind>> {
    let selections = select(wanted, devices, VM);
    assert_eq!(selections.len(), wanted.len());
    let kind = |selection: Selection| match selection.found {
        Ok((_, index)) => Ok(index),
        Err(refusal) => Err(refusal.kind),
    };
    selections.into_iter().map(kind).collect()
}

fn by_serial(serial: &str) -> Wanted {
    Wanted {
        serial: Some(serial.into()),
        ..wanted("data")
    }
}

fn by_path(pattern: &str) -> Wanted {
    Wanted {
        serial: None,
        path: Some(pattern.into()),
        ..wanted("data")
    }
}

fn on(bus: Bus, device: Device) -> Device {
    Device { bus, ..device }
}

#[test]
fn serials_are_compared_as_shown_by_the_bus() {
    use RefusalKind::Missing;
    let long = "0123456789abcdefghijKLM";
    let shown = "0123456789abcdefghij";
    for (bus, asked, has, result) in [
        (Bus::Virtio, "data1", Some("data1"), Ok(0)),
        (Bus::Virtio, long, Some(shown), Ok(0)),
        (Bus::Virtio, shown, Some(shown), Ok(0)),
        (Bus::Virtio, "data", Some("data1"), Err(Missing)),
        (Bus::Virtio, "data1", Some("data"), Err(Missing)),
        (Bus::Virtio, "data1", None, Err(Missing)),
        (Bus::Virtio, "data1", Some(""), Err(Missing)),
        (Bus::Scsi, long, Some(shown), Err(Missing)),
        (Bus::Scsi, long, Some(long), Ok(0)),
        (Bus::Nvme, "data1", Some("data1"), Ok(0)),
    ] {
        let device = on(bus, device(1, has));
        assert_eq!(
            found(&[by_serial(asked)], &[device]),
            [result],
            "{bus:?} {asked} {has:?}"
        );
    }
    // The twentieth byte is within a character: bytes are compared, without a panic.
    assert_eq!(
        found(&[by_serial("0123456789abcdefghi\u{e4}")], &[device(1, Some("x"))]),
        [Err(Missing)]
    );
}

#[test]
fn equal_serials_are_ambiguous() {
    let devices = [device(1, Some("data1")), device(2, Some("data1"))];
    assert_eq!(
        found(&[by_serial("data1")], &devices),
        [Err(RefusalKind::Ambiguous)]
    );
    // Also if one of them is not eligible.
    let devices = [
        device(1, Some("data1")),
        Device {
            carries_system: true,
            ..device(2, Some("data1"))
        },
    ];
    assert_eq!(
        found(&[by_serial("data1")], &devices),
        [Err(RefusalKind::Ambiguous)]
    );
    // With more conditions only one matches.
    let sure = Wanted {
        path: Some("pci-0000:01:*".into()),
        ..by_serial("data1")
    };
    assert_eq!(found(&[sure], &devices), [Ok(0)]);
}

#[test]
fn device_claimed_twice_is_refused() {
    let long = "0123456789abcdefghij";
    let names = [
        by_serial(&format!("{long}-a")),
        by_serial(&format!("{long}-b")),
        by_path("pci-0000:02:00.0"),
    ];
    let devices = [device(1, Some(long)), device(2, None)];
    let twice = Err(RefusalKind::ClaimedTwice);
    assert_eq!(found(&names, &devices), [twice, twice, Ok(1)]);
    let names = [positional("a", 1), positional("b", 1), positional("c", 2)];
    let devices = [device(1, None), device(2, None)];
    assert_eq!(found(&names, &devices), [twice, twice, Ok(1)]);
}

#[test]
fn system_and_read_only_disks_are_not_eligible() {
    let small = |device: Device| Device {
        id: DeviceId {
            size: MIN_DISK_BYTES - 512,
            ..device.id
        },
        ..device
    };
    for bad in [
        Device {
            carries_system: true,
            ..device(1, Some("s-data"))
        },
        Device {
            read_only: true,
            ..device(1, Some("s-data"))
        },
        small(device(1, Some("s-data"))),
    ] {
        assert_eq!(
            found(&[wanted("data")], std::slice::from_ref(&bad)),
            [Err(RefusalKind::NotEligible)]
        );
        let bad = Device {
            id: DeviceId {
                size: bad.id.size.max(GIB / 2),
                ..bad.id.clone()
            },
            ..bad
        };
        let any = Wanted {
            size: Some(bad.id.size),
            ..positional("data", 1)
        };
        if bad.carries_system || bad.read_only {
            assert_eq!(found(&[any], &[bad]), [Err(RefusalKind::Missing)]);
        }
    }
}

#[test]
fn order_counts_unnamed_disks_in_bus_order() {
    let mut devices = vec![device(3, None), device(1, None), device(2, Some("s-data"))];
    devices.push(Device {
        carries_system: true,
        ..device(0, None)
    });
    let names = [
        positional("a", 1),
        positional("b", 2),
        positional("c", 3),
        wanted("data"),
    ];
    assert_eq!(
        found(&names, &devices),
        [Ok(1), Ok(0), Err(RefusalKind::Missing), Ok(2)]
    );
    let sizes = [Wanted {
        size: Some(2 * GIB),
        ..positional("a", 1)
    }];
    assert_eq!(found(&sizes, &devices), [Err(RefusalKind::Missing)]);
    let zero = [Wanted {
        order: Some(0),
        ..positional("a", 1)
    }];
    assert_eq!(found(&zero, &devices), [Err(RefusalKind::Missing)]);
}

#[test]
fn scsi_addresses_are_sorted_numerically() {
    let at = |n: u8, lun: &str| Device {
        syspath: format!(
            "/sys/devices/pci0000:00/0000:00:05.0/virtio2/host2/target2:0:0/2:0:0:{lun}/block/sd{n}"
        ),
        ..device(n, None)
    };
    assert_eq!(
        found(&[positional("a", 2)], &[at(1, "10"), at(2, "9"), at(3, "11")]),
        [Ok(0)]
    );
    let pci = |n: u8, slot: &str| Device {
        syspath: format!("/sys/devices/pci0000:00/0000:00:{slot}.0/x"),
        ..device(n, None)
    };
    assert_eq!(
        found(&[positional("a", 2)], &[pci(1, "10"), pci(2, "09"), pci(3, "0a")]),
        [Ok(2)]
    );
}

#[test]
fn size_without_order_must_match_one_disk() {
    let any = Wanted {
        order: None,
        ..positional("a", 1)
    };
    let select = |devices: &[Device]| found(std::slice::from_ref(&any), devices).remove(0);
    assert_eq!(select(&[]), Err(RefusalKind::Missing));
    assert_eq!(select(&[device(1, None)]), Ok(0));
    assert_eq!(
        select(&[device(1, None), device(2, None)]),
        Err(RefusalKind::Ambiguous)
    );
}

/// The agent disk (`packaging/image/agent-disk.sh`) is one more disk in the VM. It is too small to
/// be counted, wherever it is, and also while its content is unknown.
#[test]
fn the_agent_disk_changes_no_position() {
    let agent = |n: u8| Device {
        id: DeviceId {
            size: 14 << 20,
            ..device(n, None).id
        },
        carried: Carried::Unknown,
        ..device(n, None)
    };
    let with_agent = |at: u8| -> Vec<Device> {
        let one = |n: u8| if n == at { agent(n) } else { device(n, None) };
        (1..=3).map(one).collect()
    };
    let names = [positional("a", 1), positional("b", 2)];
    for (at, expected) in [(1, [1, 2]), (2, [0, 2]), (3, [0, 1])] {
        let expected: [Result<usize, RefusalKind>; 2] = expected.map(Ok);
        assert_eq!(found(&names, &with_agent(at)), expected, "{at}");
    }
    let devices = [agent(1), device(2, None)];
    let by_size = |size: u64| Wanted {
        size: Some(size),
        order: None,
        ..positional("a", 1)
    };
    assert_eq!(found(&[by_size(GIB)], &devices), [Ok(1)]);
    assert_eq!(found(&[by_size(14 << 20)], &devices), [Err(RefusalKind::Missing)]);
    // A path counts it as any disk: a pattern for both matches neither.
    assert_eq!(found(&[by_path("pci-0000:02:*")], &devices), [Ok(1)]);
    assert_eq!(
        found(&[by_path("pci-0000:*")], &devices),
        [Err(RefusalKind::Ambiguous)]
    );
    assert_eq!(
        found(&[by_path("pci-0000:01:*")], &devices),
        [Err(RefusalKind::NotEligible)]
    );
}

#[test]
fn ambiguous_devices_are_not_matched_by_position() {
    let devices = [
        device(1, Some("s-data")),
        device(2, Some("s-data")),
        device(3, None),
    ];
    assert_eq!(
        found(&[wanted("data"), positional("a", 1)], &devices),
        [Err(RefusalKind::Ambiguous), Ok(2)]
    );
}

#[test]
fn key_has_the_serial_of_the_guest() {
    let devices = [Device {
        volume: Some("vol".into()),
        ..device(1, Some("0123456789abcdefghij"))
    }];
    let key = |wanted: Wanted| select(&[wanted], &devices, VM).remove(0).found.unwrap().0;
    let by_volume = Wanted {
        serial: None,
        volume: Some("vol".into()),
        ..wanted("data")
    };
    assert_eq!(
        key(by_serial("0123456789abcdefghijKLM")),
        Key::Serial("0123456789abcdefghij".into())
    );
    assert_eq!(key(by_volume), Key::Volume("vol".into()));
    assert_eq!(key(by_path("pci-*")), Key::Path("pci-0000:01:00.0".into()));
    assert_eq!(key(positional("a", 1)), Key::Position { size: GIB, order: 1 });
}

#[test]
fn star_matches_any_text() {
    for (pattern, text, fits) in [
        ("abc", "abc", true),
        ("abc", "abcd", false),
        ("*", "", true),
        ("a*", "abc", true),
        ("*c", "abc", true),
        ("a*c", "ac", true),
        ("a*c", "abcd", false),
        ("ab*bc", "abc", false),
        ("a*b*c", "a-b-b-c", true),
        ("*b*b*", "abc", false),
        ("**", "abc", true),
        ("", "", true),
        ("", "a", false),
    ] {
        assert_eq!(glob(pattern, text), fits, "{pattern} {text}");
    }
}

fn any_device() -> impl Strategy<Value = Device> {
    (
        0_u8..9,
        prop::option::of("s-[abc]|0b3f6f3e-6d7b-4c55-[0-9]"),
        [0.2, 0.2, 0.3].map(prop::bool::weighted),
        1_u64..3,
    )
        .prop_map(|(n, serial, [carries_system, read_only, came_later], size)| {
            let device = device(n, serial.as_deref());
            Device {
                carries_system,
                read_only,
                came_later,
                id: DeviceId {
                    size: size * GIB,
                    ..device.id
                },
                ..device
            }
        })
}

fn any_wanted() -> impl Strategy<Value = Wanted> {
    prop_oneof![
        "[abc]".prop_map(|name| wanted(&name)),
        ("[def]", 1_u32..4, 1_u64..3).prop_map(|(name, order, size)| Wanted {
            size: Some(size * GIB),
            ..positional(&name, order)
        }),
        ("[ghi]", 0_u8..9).prop_map(|(name, n)| Wanted {
            name,
            ..by_path(&format!("pci-0000:{n:02x}:*"))
        }),
    ]
}

proptest! {
    #[test]
    fn devices_are_assigned_once_and_only_if_eligible(
        wanted in prop::collection::vec(any_wanted(), 0..6),
        devices in prop::collection::vec(any_device(), 0..8),
    ) {
        let selections = select(&wanted, &devices, VM);
        let mut taken = BTreeSet::new();
        for (wanted, selection) in wanted.iter().zip(&selections) {
            prop_assert_eq!(&wanted.name, &selection.name);
            if let Ok((_, index)) = &selection.found {
                prop_assert!(taken.insert(*index));
                prop_assert_eq!(ineligible(&devices[*index]), None);
                prop_assert!(!csi::is_excluded(wanted, &devices[*index]));
                prop_assert!(!devices[*index].came_later || wanted.serial.is_some());
                if !wanted.is_positional() {
                    let fitting = devices.iter().filter(|device| fits(wanted, device)).count();
                    prop_assert_eq!(fitting, 1);
                }
            }
        }
        prop_assert_eq!(select(&wanted, &devices, VM), selections);
    }

    /// The selection does not depend on the kernel's order of the disks.
    #[test]
    fn selection_is_independent_of_device_order(
        wanted in prop::collection::vec(any_wanted(), 0..6),
        devices in prop::collection::btree_map(0_u8..9, any_device(), 0..8),
    ) {
        let devices: Vec<Device> = devices.into_iter().map(|(n, other)| {
            let device = device(n, other.id.serial.as_deref());
            Device {
                carries_system: other.carries_system,
                read_only: other.read_only,
                came_later: other.came_later,
                ..device
            }
        }).collect();
        let mut turned = devices.clone();
        turned.reverse();
        let last = devices.len().wrapping_sub(1);
        for (a, b) in select(&wanted, &devices, VM).iter().zip(select(&wanted, &turned, VM)) {
            match (&a.found, b.found) {
                (Ok((key, index)), Ok((other, turned))) => prop_assert!(*key == other && *index == last - turned),
                (a, b) => prop_assert_eq!(a.as_ref().err().map(|r| r.kind), b.err().map(|r| r.kind)),
            }
        }
    }
}
