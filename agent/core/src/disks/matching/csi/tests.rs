use super::*;
use crate::disks::{
    device::{Bus, Carried},
    findings::findings,
    fixtures::{GIB, VM, device, fs_uuid, positional, wanted},
    matching::select,
    plan::RefusalKind,
    seen::Seen,
};
use virtfleet_wire::finding::Severity;

/// UID of a DataVolume, and the part that virtio shows.
const UID: &str = "0b3f6f3e-6d7b-4c55-9d0c-2f6a1b7c8d9e";
const CUT: &str = "0b3f6f3e-6d7b-4c55-9";

fn by_path(pattern: &str) -> Wanted {
    Wanted {
        serial: None,
        path: Some(pattern.to_owned()),
        ..wanted("data")
    }
}

fn by_size() -> Wanted {
    Wanted {
        order: None,
        ..positional("data", 1)
    }
}

fn found(disks: &[Wanted], devices: &[Device]) -> Vec<Result<usize, RefusalKind>> {
    let each = select(disks, devices, VM).into_iter();
    each.map(|one| one.found.map(|(_, index)| index).map_err(|refusal| refusal.kind))
        .collect()
}

fn on_scsi(device: Device) -> Device {
    Device {
        bus: Bus::Scsi,
        ..device
    }
}

#[test]
fn csi_serial_is_a_uuid_or_its_first_twenty_bytes() {
    for yes in [UID, CUT, &UID.to_uppercase(), "ffffffff-ffff-ffff-f"] {
        assert!(is_csi_serial(yes), "{yes}");
    }
    for no in [
        "",
        "data1",
        "0b3f6f3e6d7b4c559d0c",
        "0b3f6f3e-6d7b-4c55-",
        "0b3f6f3e-6d7b-4c55-9d",
        "0b3f6f3e-6d7b-4c55-g",
        "0b3f6f3e-6d7b-4c559-",
        "0b3f6f3-e6d7b-4c55-9",
        "0b3f6f3e-6d7b-4c55-9d0c-2f6a1b7c8d9",
        "0b3f6f3e-6d7b-4c55-9d0c-2f6a1b7c8d-e",
        "--------------------",
        "0b3f6f3e-6d7b-4c5\u{e4}-",
    ] {
        assert!(!is_csi_serial(no), "{no}");
    }
}

#[test]
fn path_size_and_order_never_match_a_csi_volume() {
    use RefusalKind::Missing;
    for csi in [device(1, Some(CUT)), on_scsi(device(1, Some(UID)))] {
        let spec = device(2, None);
        let both = [csi.clone(), spec.clone()];
        // Neither matched nor counted.
        assert_eq!(found(&[by_path("pci-*")], &both), [Ok(1)]);
        assert_eq!(found(&[by_size()], &both), [Ok(1)]);
        assert_eq!(found(&[positional("data", 1)], &both), [Ok(1)]);
        assert_eq!(found(&[positional("data", 2)], &both), [Err(Missing)]);
        let slot = Wanted {
            path: Some("pci-*".to_owned()),
            ..positional("data", 1)
        };
        assert_eq!(found(&[slot], &both), [Ok(1)]);
        for disk in [by_path("pci-0000:01:*"), by_size(), positional("data", 1)] {
            assert_eq!(
                found(std::slice::from_ref(&disk), std::slice::from_ref(&csi)),
                [Err(Missing)]
            );
            assert_eq!(skipped(&disk, &both), [0]);
        }
        // A copy of the agent's filesystem, restored from a snapshot, is not the disk either.
        let copy = Device {
            carried: Carried::Uuid(fs_uuid("data")),
            ..csi.clone()
        };
        assert_eq!(found(&[positional("data", 1)], &[copy, spec.clone()]), [Ok(1)]);
        // The content of a CSI volume may be unknown.
        let unknown = Device {
            carried: Carried::Unknown,
            ..csi
        };
        assert_eq!(found(&[positional("data", 1)], &[unknown, spec]), [Ok(1)]);
    }
}

#[test]
fn csi_volume_matches_by_serial_or_volume() {
    let by_serial = |disk: Wanted| Wanted {
        serial: Some(UID.to_owned()),
        ..disk
    };
    for csi in [device(1, Some(CUT)), on_scsi(device(1, Some(UID)))] {
        for disk in [
            by_serial(wanted("data")),
            by_serial(by_path("pci-*")),
            by_serial(positional("data", 1)),
        ] {
            assert_eq!(
                found(std::slice::from_ref(&disk), std::slice::from_ref(&csi)),
                [Ok(0)]
            );
            assert!(skipped(&disk, std::slice::from_ref(&csi)).is_empty());
        }
        let named = Device {
            volume: Some("pvc-1".to_owned()),
            ..csi
        };
        let by_volume = Wanted {
            serial: None,
            volume: Some("pvc-1".to_owned()),
            ..wanted("data")
        };
        assert_eq!(found(&[by_volume], &[named]), [Ok(0)]);
    }
}

#[test]
fn skipped_csi_volumes_are_reported() {
    let csi = device(1, Some(CUT));
    let small = Device {
        id: crate::disks::DeviceId {
            size: 1 << 20,
            ..device(3, Some(UID)).id
        },
        ..device(3, Some(UID))
    };
    let of = |disk: &Wanted, devices: &[Device]| {
        let seen = Seen {
            vm_uuid: VM.to_owned(),
            devices: devices.to_vec(),
            ..Seen::default()
        };
        let plan = crate::disks::plan::plan(
            std::slice::from_ref(disk),
            &[],
            &seen,
            &crate::disks::journal::Journal::default(),
        );
        let mut all = findings(std::slice::from_ref(disk), &plan, &seen);
        all.retain(|one| one.id == "disk-csi-volume-skipped");
        all
    };
    let alone = of(&by_size(), &[csi.clone(), small.clone()]);
    assert_eq!(alone.len(), 1);
    assert_eq!(alone[0].severity, Severity::Warning);
    assert!(alone[0].message.contains("/dev/vdb") && alone[0].message.contains(CUT));
    assert!(alone[0].remedy.contains("serial"), "{}", alone[0].remedy);
    // If another disk matches, it is only a note.
    let beside = of(&by_size(), &[csi.clone(), device(2, None)]);
    assert_eq!((beside.len(), beside[0].severity), (1, Severity::Info));
    assert!(of(&wanted("data"), std::slice::from_ref(&csi)).is_empty());
    let other_size = Wanted {
        size: Some(2 * GIB),
        ..by_size()
    };
    assert!(of(&other_size, &[csi]).is_empty());
    assert!(of(&by_path("pci-*"), &[small]).is_empty());
}
