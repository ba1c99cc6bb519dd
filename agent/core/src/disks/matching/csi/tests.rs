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
/// Name of a volume of the external provisioner.
const PVC: &str = "pvc-0b3f6f3e-6d7b-4c55-9d0c-2f6a1b7c8d9e";

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

/// A volume in each form in which drivers attach it early, so that only its name tells.
fn csi_volumes() -> [Device; 5] {
    let unnamed = on_scsi(device(1, None));
    [
        device(1, Some(CUT)),
        on_scsi(device(1, Some(UID))),
        device(1, Some(&PVC[..VIRTIO_SERIAL_BYTES])),
        on_scsi(device(1, Some(PVC))),
        Device {
            volume: Some(PVC.to_owned()),
            ..unnamed
        },
    ]
}

/// A disk that came later.
fn late(device: Device) -> Device {
    Device {
        came_later: true,
        ..device
    }
}

#[test]
fn csi_name_is_that_of_a_volume_or_its_first_twenty_bytes() {
    for yes in [
        UID,
        CUT,
        &UID.to_uppercase(),
        "ffffffff-ffff-ffff-f",
        PVC,
        &PVC[..VIRTIO_SERIAL_BYTES],
        &format!("{PVC}-e-0"),
    ] {
        assert!(is_csi_name(yes), "{yes}");
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
        "pvc-",
        "pvc-data",
        "pvc-0b3f6f3e-6d7b-4",
        "pvc-0b3f6f3e6d7b4c55",
        "pvc-database-of-the-tenants",
        "pvc-0b3f6f3e-6d7b-4c55-9d0c-2f6a1b7c8d9\u{e4}",
        "PVC-0b3f6f3e-6d7b-4c55-9d0c-2f6a1b7c8d9e",
    ] {
        assert!(!is_csi_name(no), "{no}");
    }
}

#[test]
fn path_size_and_order_never_match_a_csi_volume() {
    use RefusalKind::Missing;
    for csi in csi_volumes() {
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

/// Without a serial only the time tells a volume from a disk of the VM's spec.
#[test]
fn path_size_and_order_never_match_a_disk_that_came_later() {
    use RefusalKind::{CameLater, Missing};
    let volume = late(device(1, None));
    let spec = device(2, None);
    for disk in [
        by_path("pci-*"),
        by_size(),
        positional("data", 1),
        Wanted {
            path: Some("pci-*".to_owned()),
            ..positional("data", 1)
        },
    ] {
        let only = std::slice::from_ref(&disk);
        assert_eq!(found(only, &[volume.clone(), spec.clone()]), [Ok(1)], "{disk:?}");
        for serial in [None, Some("data1")] {
            let alone = [late(device(1, serial))];
            assert_eq!(found(only, &alone), [Err(CameLater)], "{disk:?}");
            assert_eq!(skipped(&disk, &alone), [0]);
        }
        // The name of a volume says more than the time, and cannot be approved.
        for csi in csi_volumes().map(late) {
            assert_eq!(found(only, &[csi]), [Err(Missing)], "{disk:?}");
        }
        let ineligible = Device {
            read_only: true,
            ..volume.clone()
        };
        assert_eq!(found(only, &[ineligible]), [Err(Missing)], "{disk:?}");
    }
    // It is not counted, and of several none is the one.
    let third = late(device(3, None));
    assert_eq!(
        found(&[positional("data", 2)], &[spec.clone(), third]),
        [Err(CameLater)]
    );
    assert_eq!(
        found(&[positional("data", 2)], &[volume.clone(), spec.clone()]),
        [Err(Missing)]
    );
    let two = [volume.clone(), late(device(3, None))];
    assert_eq!(found(&[by_size()], &two), [Err(Missing)]);
    // A known disk at another position is no answer, nor is a named one.
    assert_eq!(
        found(&[by_path("pci-0000:02:*")], std::slice::from_ref(&volume)),
        [Err(Missing)]
    );
    assert_eq!(found(&[wanted("data")], &[volume]), [Err(Missing)]);
    // What udev has not read yet may be the disk that the agent has formatted.
    let unread = Device {
        carried: Carried::Unknown,
        ..late(device(1, None))
    };
    assert_eq!(
        found(&[positional("data", 1)], &[unread, spec]),
        [Err(RefusalKind::Unreadable)]
    );
}

#[test]
fn refusal_of_a_late_disk_is_void_after_a_reboot() {
    let plan = |boot: &str, device: Device| {
        let seen = Seen {
            vm_uuid: VM.to_owned(),
            boot_id: boot.to_owned(),
            devices: vec![device],
            ..Seen::default()
        };
        let disks = [by_size()];
        let mut plan =
            crate::disks::plan::plan(&disks, &[], &seen, &crate::disks::journal::Journal::default());
        let skipped = findings(&disks, &plan, &seen);
        // The refusal names the device; it is not reported twice.
        assert_eq!(
            skipped.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(),
            ["disk-came-later"]
        );
        assert_eq!(skipped[0].reason, "CameLater");
        plan.disks.remove(0).refusals.remove(0)
    };
    let volume = late(device(1, None));
    let refusal = plan("boot-1", volume.clone());
    assert_eq!(
        (refusal.kind, refusal.evidence.len()),
        (RefusalKind::CameLater, 64)
    );
    assert!(
        refusal.remedy.contains("disks approve data --evidence"),
        "{}",
        refusal.remedy
    );
    assert_eq!(plan("boot-1", volume.clone()), refusal);
    let mut replaced = volume.clone();
    replaced.id.diskseq = Some(9);
    let mut moved = volume.clone();
    moved.syspath = device(7, None).syspath;
    for other in [
        plan("boot-2", volume),
        plan("boot-1", replaced),
        plan("boot-1", moved),
    ] {
        assert_ne!(other.evidence, refusal.evidence);
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
        for device in [named.clone(), late(named)] {
            assert_eq!(found(std::slice::from_ref(&by_volume), &[device]), [Ok(0)]);
        }
    }
    // A serial that no driver assigned, plugged in later.
    let plugged = late(device(1, Some("s-data")));
    assert_eq!(found(&[wanted("data")], std::slice::from_ref(&plugged)), [Ok(0)]);
    let with_order = Wanted {
        serial: Some("s-data".to_owned()),
        ..positional("data", 1)
    };
    assert_eq!(found(&[with_order], &[plugged]), [Ok(0)]);
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
    let beside = of(&by_size(), &[late(device(1, None)), device(2, None)]);
    assert_eq!(beside.len(), 1);
    assert_eq!(
        (beside[0].severity, beside[0].reason.as_str()),
        (Severity::Info, "CameLater")
    );
    assert!(beside[0].message.contains("first boot"), "{}", beside[0].message);
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
