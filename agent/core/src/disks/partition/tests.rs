use super::*;
use crate::disks::fixtures::{encrypted, swap, wanted};

fn of(kind: &str) -> Partition {
    Partition {
        kind: kind.into(),
        ..Partition::default()
    }
}

#[test]
fn partition_type_must_match_the_declared_use() {
    let home = Wanted {
        mount_point: Some("/home".into()),
        ..wanted("data")
    };
    let good = |kind: &str, disk: &Wanted| of(kind).objection(disk).is_none();
    for kind in [LINUX_DATA, MBR_LINUX] {
        for disk in [&wanted("data"), &swap("swap"), &encrypted("luks"), &home] {
            assert!(good(kind, disk), "{kind}");
        }
    }
    for kind in SWAP {
        assert!(good(kind, &swap("swap")) && !good(kind, &wanted("data")));
    }
    for kind in LUKS {
        assert!(good(kind, &encrypted("luks")) && !good(kind, &wanted("data")));
    }
    assert!(good(PLACES[0].0, &home) && !good(PLACES[0].0, &wanted("data")));
    // GPT: ESP, BIOS boot, LVM, RAID, root for x86-64, Flatcar's /usr, Microsoft data. MBR: FAT,
    // LVM, RAID, extended, ESP.
    for kind in [
        "c12a7328-f81f-11d2-ba4b-00a0c93ec93b",
        "21686148-6449-6e6f-744e-656564454649",
        "e6d6d379-f507-44c2-a23c-238f2a3df928",
        "a19d880f-05fc-4d3b-a006-743f0f84911e",
        "4f68bce3-e8cd-4db1-96e7-fbcaf984b709",
        "5dfbf5f4-2848-4bac-aa5e-0d9a20b745a6",
        "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7",
        "0xc",
        "0x8e",
        "0xfd",
        "0x5",
        "0xef",
        "",
    ] {
        for disk in [&wanted("data"), &swap("swap"), &encrypted("luks"), &home] {
            assert!(!good(kind, disk), "{kind}");
        }
    }
}

#[test]
fn required_and_read_only_attributes_refuse() {
    let with = |attributes| Partition {
        attributes,
        ..of(LINUX_DATA)
    };
    let objection = |attributes| with(attributes).objection(&wanted("data"));
    assert_eq!(objection(0), None);
    assert_eq!(objection(1 << 2), None, "legacy BIOS bootable");
    assert!(objection(1).unwrap().contains("bit 0"));
    assert!(objection(1 << 60).unwrap().contains("bit 60"));
}

#[test]
fn part_uuid_and_part_label_are_validated() {
    for (uuid, good) in [
        ("0fc63daf-8483-4772-8e79-3d69d8477de4", true),
        ("0FC63DAF-8483-4772-8E79-3D69D8477DE4", true),
        ("fb705cfa-02", true),
        ("fb705cfa-2", false),
        ("00000000-01", false),
        ("00000000-0000-0000-0000-000000000000", false),
        ("0fc63daf84834772-8e79-3d69d8477de4", false),
        ("0gc63daf-8483-4772-8e79-3d69d8477de4", false),
        ("\u{e4}", false),
        ("", false),
        ("-", false),
    ] {
        assert_eq!(uuid_objection(uuid).is_none(), good, "{uuid}");
    }
    for (label, good) in [
        ("data", true),
        ("blank part", true),
        (&"a".repeat(36), true),
        (&"a".repeat(37), false),
        ("", false),
        (" a", false),
        ("a\n", false),
        ("d\u{e4}", false),
    ] {
        assert_eq!(label_objection(label).is_none(), good, "{label}");
    }
}
