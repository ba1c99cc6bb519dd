//! Mount points, growth, owners.

use virtfleet_wire::settings::SeedFrom;

use super::*;
use crate::disks::{
    device::{Device, Use},
    journal::{Entry, Progress},
    seen::{MountPoint, Mounted},
    wanted::Owner,
};

fn vdb() -> Device {
    device(1, Some("s-data"))
}

fn mounted(device: &Device, at: &str) -> Mounted {
    Mounted {
        mount_point: at.into(),
        number: device.id.number,
        root: "/".into(),
        filesystem: "ext4".into(),
        options: vec!["rw".into()],
        filesystem_bytes: Some(device.id.size),
        owner: Some(Owner {
            user: Some("0".into()),
            group: Some("0".into()),
            mode: Some(0o755),
        }),
    }
}

/// State with the disk mounted in its declared place.
fn in_place(disk: &Wanted, device: Device) -> Seen {
    let at = disk.mount_point.clone().unwrap();
    let mount = mounted(&device, &at);
    let device = Device {
        uses: vec![Use::Mounted(at)],
        ..device
    };
    let mut seen = seen(
        std::slice::from_ref(disk),
        vec![device],
        vec![("data", data("ext4", Some(FOREIGN)))],
    );
    seen.mounts.push(mount);
    written(disk, &mut seen);
    seen
}

/// Journal with the disk in use.
fn used() -> Journal {
    journal(vec![Entry {
        uuid: FOREIGN.into(),
        ..entry("data", &vdb(), Progress::Used)
    }])
}

/// State with the files of the plan.
fn written(disk: &Wanted, seen: &mut Seen) {
    for step in one(disk, seen, &journal(vec![])).steps {
        if let DiskStep::WriteFile { path, text } = step {
            seen.files.insert(path, text);
        }
    }
}

#[test]
fn mounted_disk_needs_no_steps() {
    let disk = wanted("data");
    let plan = one(&disk, &in_place(&disk, vdb()), &used());
    assert_eq!((plan.steps, plan.refusals, plan.notes), (vec![], vec![], vec![]));
    // Not even a probe of the disk is needed.
    let mut unseen = in_place(&disk, vdb());
    unseen.probes.clear();
    assert!(one(&disk, &unseen, &used()).steps.is_empty());
}

#[test]
fn foreign_mount_is_recorded_and_never_formatted() {
    let disk = wanted("data");
    let there = in_place(&disk, vdb());
    let formatted = entry("data", &vdb(), Progress::Formatted);
    let other = entry("data", &vdb(), Progress::Used);
    for entries in [vec![], vec![formatted], vec![other]] {
        let plan = one(&disk, &there, &journal(entries.clone()));
        let [DiskStep::RecordUse { uuid, filesystem, .. }] = &plan.steps[..] else {
            panic!("{entries:?}: {:?}", plan.steps)
        };
        assert_eq!((uuid.as_str(), filesystem.as_str()), (FOREIGN, "ext4"));
    }
    let blank = seen(std::slice::from_ref(&disk), vec![vdb()], vec![("data", blank())]);
    assert_eq!(
        refusal(&one(&disk, &blank, &used())),
        Some(RefusalKind::BlankAgain)
    );
}

#[test]
fn changed_options_cause_a_remount_or_a_note() {
    let asked = |options: &[&str]| Wanted {
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        ..wanted("data")
    };
    let before = asked(&["noatime", "prjquota"]);
    let mut there = in_place(&before, vdb());
    there.mounts[0].options = ["rw", "noatime", "rw", "prjquota"].map(str::to_owned).to_vec();
    assert!(one(&before, &there, &used()).steps.is_empty());
    let plan = one(&asked(&["nodev", "discard", "commit=30"]), &there, &used());
    assert_eq!(words(&plan), ["remount"]);
    let writes = plan
        .steps
        .iter()
        .filter(|step| matches!(step, DiskStep::WriteFile { .. }));
    assert_eq!(writes.count(), 1, "the unit has the new ones for the next boot");
    let Some(DiskStep::Remount { options, .. }) = plan.steps.last() else {
        panic!("{:?}", plan.steps)
    };
    assert_eq!(options, &["nodev", "relatime", "discard"]);
    assert!(
        plan.notes.iter().any(|note| note.contains("without prjquota")),
        "{:?}",
        plan.notes
    );
    // Options that were not requested are kept.
    there.files.clear();
    let plan = one(&wanted("data"), &there, &used());
    assert!(words(&plan).is_empty() && plan.notes.is_empty(), "{plan:?}");
}

#[test]
fn foreign_use_refuses() {
    let disk = wanted("data");
    for (used, kind) in [
        (Use::Mounted("/elsewhere".into()), RefusalKind::InUse),
        (Use::Mounted("/mnt/data (17)".into()), RefusalKind::InUse),
        (
            Use::Mounted("/run/virtfleet/seed/data".into()),
            RefusalKind::InUse,
        ),
        (Use::Swap, RefusalKind::InUse),
        (Use::Holder("dm-0".into()), RefusalKind::InUse),
        (Use::Partition("vdb1".into()), RefusalKind::ForeignData),
    ] {
        let device = Device {
            uses: vec![used.clone()],
            ..vdb()
        };
        let seen = seen(std::slice::from_ref(&disk), vec![device], vec![("data", blank())]);
        assert_eq!(
            refusal(&one(&disk, &seen, &journal(vec![]))),
            Some(kind),
            "{used:?}"
        );
    }
    // The agent's own private mount, left by an interrupted run.
    let device = Device {
        uses: vec![Use::Mounted("/run/virtfleet/seed/data".into())],
        ..vdb()
    };
    let probe = data("ext4", Some(&fs_uuid("data")));
    let seen = seen(std::slice::from_ref(&disk), vec![device], vec![("data", probe)]);
    let plan = one(
        &disk,
        &seen,
        &journal(vec![entry("data", &vdb(), Progress::Seeding)]),
    );
    assert_eq!(words(&plan), ["mount"]);
}

#[test]
fn files_below_mount_point_are_copied_kept_or_refused() {
    use Progress::{Formatted, Seeded, Seeding, Used};
    const TAKEN: Option<RefusalKind> = Some(RefusalKind::MountPointTaken);
    let ours = || data("ext4", Some(&fs_uuid("data")));
    for (probe, progress, seed_from, steps, refused) in [
        (blank(), None, SeedFrom::None, &[][..], TAKEN),
        (
            blank(),
            None,
            SeedFrom::Existing,
            &["format", "seed", "mount"][..],
            None,
        ),
        (
            ours(),
            Some(Formatted),
            SeedFrom::Existing,
            &["seed", "mount"],
            None,
        ),
        (ours(), Some(Formatted), SeedFrom::None, &[], TAKEN),
        (
            ours(),
            Some(Seeding),
            SeedFrom::Existing,
            &["seed", "mount"],
            None,
        ),
        (ours(), Some(Seeded), SeedFrom::Existing, &["mount"], None),
        (ours(), Some(Used), SeedFrom::Existing, &["mount"], None),
        (ours(), Some(Used), SeedFrom::None, &["mount"], None),
        (ours(), None, SeedFrom::Existing, &["mount"], None),
        (ours(), None, SeedFrom::None, &[], TAKEN),
        (
            data("ext4", Some(FOREIGN)),
            Some(Used),
            SeedFrom::Existing,
            &["mount"],
            None,
        ),
    ] {
        let disk = Wanted {
            seed_from,
            ..wanted("data")
        };
        let mut seen = seen(std::slice::from_ref(&disk), vec![vdb()], vec![("data", probe)]);
        seen.mount_points.get_mut("/mnt/data").unwrap().entries = 3;
        let entries = progress
            .map(|progress| entry("data", &vdb(), progress))
            .into_iter()
            .collect();
        let plan = one(&disk, &seen, &journal(entries));
        assert_eq!(
            (&words(&plan)[..], refusal(&plan)),
            (steps, refused),
            "{progress:?} {seed_from:?}"
        );
        if steps == ["mount"] {
            assert!(
                plan.notes.iter().any(|note| note.contains("3 entries")),
                "{:?}",
                plan.notes
            );
        }
    }
}

#[test]
fn unusable_mount_point_refuses() {
    let disk = wanted("data");
    let good = seen(std::slice::from_ref(&disk), vec![vdb()], vec![("data", blank())]);
    let with = |point: Option<MountPoint>| {
        let mut seen = good.clone();
        seen.mount_points.clear();
        seen.mount_points
            .extend(point.map(|point| ("/mnt/data".to_owned(), point)));
        one(&disk, &seen, &journal(vec![]))
    };
    for point in [
        None,
        Some(MountPoint {
            unusable: Some("a file".into()),
            ..MountPoint::default()
        }),
        Some(MountPoint {
            exists: true,
            busy: vec!["kubelet (7)".into()],
            ..MountPoint::default()
        }),
    ] {
        let plan = with(point.clone());
        assert_eq!(
            (words(&plan).len(), refusal(&plan)),
            (0, Some(RefusalKind::MountPointTaken)),
            "{point:?}"
        );
    }
    assert_eq!(
        words(&with(Some(MountPoint::default()))),
        ["format", "make-mount-point", "mount"]
    );
    let mut other = good;
    other.mounts.push(mounted(&device(5, None), "/mnt/data"));
    assert_eq!(
        refusal(&one(&disk, &other, &journal(vec![]))),
        Some(RefusalKind::MountPointTaken)
    );
}

#[test]
fn nested_disk_depends_on_the_upper_one() {
    let outer = wanted("data");
    let inner = Wanted {
        mount_point: Some("/mnt/data/in".into()),
        ..wanted("b")
    };
    let neighbour = Wanted {
        mount_point: Some("/mnt/database".into()),
        ..wanted("c")
    };
    let all = [outer, inner, neighbour];
    let devices = vec![vdb(), device(2, Some("s-b")), device(3, Some("s-c"))];
    let probes = |first| vec![("data", first), ("b", blank()), ("c", blank())];
    let planned = plan(
        &all,
        &[],
        &seen(&all, devices.clone(), probes(blank())),
        &journal(vec![]),
    )
    .disks;
    assert_eq!(words(&planned[1]), ["format", "make-mount-point", "mount"]);
    let planned = plan(
        &all,
        &[],
        &seen(&all, devices.clone(), probes(unknown())),
        &journal(vec![]),
    )
    .disks;
    assert_eq!(refusal(&planned[1]), Some(RefusalKind::MountPointTaken));
    assert_eq!(
        words(&planned[2]),
        ["format", "mount"],
        "a path with an equal prefix"
    );
    // Already mounted: the directory was inspected on it.
    let mut there = seen(&all, devices, probes(data("ext4", Some(FOREIGN))));
    there.mounts.push(mounted(&vdb(), "/mnt/data"));
    assert_eq!(
        words(&plan(&all, &[], &there, &journal(vec![])).disks[1]),
        ["format", "mount"]
    );
}

#[test]
fn growth_is_planned_if_requested_otherwise_noted() {
    for (filesystem, device_bytes, grow, steps, notes) in [
        (GIB, GIB, true, &[][..], 0),
        (GIB - (32 << 20), GIB, true, &[], 0),
        (GIB - (33 << 20), GIB, true, &["grow"], 0),
        (GIB, 2 * GIB, true, &["grow"], 0),
        (GIB, 2 * GIB, false, &[], 1),
        (2 * GIB, GIB, true, &[], 1),
    ] {
        let disk = Wanted {
            grow,
            ..wanted("data")
        };
        let mut device = vdb();
        device.id.size = device_bytes;
        let mut seen = in_place(&disk, device);
        seen.mounts[0].filesystem_bytes = Some(filesystem);
        let plan = one(&disk, &seen, &used());
        assert_eq!(
            (&words(&plan)[..], plan.notes.len()),
            (steps, notes),
            "{filesystem} {device_bytes} {grow}"
        );
        seen.missing_tools.insert("resize2fs".into());
        assert!(words(&one(&disk, &seen, &used())).is_empty());
        seen.mounts[0].filesystem_bytes = None;
        assert!(words(&one(&disk, &seen, &used())).is_empty());
    }
}

#[test]
fn owners_are_compared_numerically() {
    let owner = |user: &str, mode| Owner {
        user: Some(user.into()),
        group: None,
        mode,
    };
    for (owner, steps, notes) in [
        (owner("root", Some(0o755)), &[][..], 0),
        (owner("0", None), &[], 0),
        (owner("root", Some(0o711)), &["own"], 0),
        (owner("1000", None), &["own"], 0),
        (owner("app", None), &["own"], 0),
        (owner("unknown-user", None), &[], 1),
    ] {
        let disk = Wanted {
            owner: Some(owner.clone()),
            ..wanted("data")
        };
        let mut seen = in_place(&disk, vdb());
        seen.users.insert("app".into(), 1001);
        let plan = one(&disk, &seen, &used());
        assert_eq!((&words(&plan)[..], plan.notes.len()), (steps, notes), "{owner:?}");
    }
}

#[test]
fn unexpected_read_only_mount_is_only_noted() {
    let disk = Wanted {
        grow: true,
        owner: Some(Owner {
            mode: Some(0),
            ..Owner::default()
        }),
        ..wanted("data")
    };
    let mut device = vdb();
    device.id.size = 2 * GIB;
    let mut seen = in_place(&disk, device);
    seen.mounts[0].options = vec!["ro".into()];
    seen.mounts[0].filesystem_bytes = Some(GIB);
    let plan = one(&disk, &seen, &used());
    assert_eq!((words(&plan).len(), plan.notes.len()), (0, 1));
}

#[test]
fn other_filesystem_in_place_is_reported() {
    let disk = wanted("data");
    let mut seen = in_place(&disk, vdb());
    seen.mounts[0].filesystem = "xfs".into();
    assert_eq!(
        refusal(&one(&disk, &seen, &journal(vec![]))),
        Some(RefusalKind::ForeignData)
    );
}

#[test]
fn swap_is_formatted_and_activated_once() {
    let disk = Wanted {
        options: vec!["discard".into()],
        ..swap("data")
    };
    let mut seen = seen(std::slice::from_ref(&disk), vec![vdb()], vec![("data", blank())]);
    assert_eq!(words(&one(&disk, &seen, &journal(vec![]))), ["format", "swap-on"]);
    seen.probes
        .insert("data".into(), data("swap", Some(&fs_uuid("data"))));
    assert_eq!(words(&one(&disk, &seen, &journal(vec![]))), ["swap-on"]);
    seen.swaps.insert(vdb().id.number);
    seen.devices[0].uses.push(Use::Swap);
    written(&disk, &mut seen);
    assert_eq!(words(&one(&disk, &seen, &journal(vec![]))), ["remember"]);
    let used = journal(vec![entry("data", &vdb(), Progress::Used)]);
    assert!(one(&disk, &seen, &used).steps.is_empty());
}
