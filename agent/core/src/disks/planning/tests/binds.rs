//! One disk for several places.

use virtfleet_wire::settings::{DiskFilesystem, SeedFrom};

use super::{world::World, *};
use crate::disks::{
    binds::private_mount_point,
    device::{DevNumber, Device, Use},
    journal::{BindRecord, Entry, Progress},
    probe::{Content, Probe},
    seen::{MountPoint, Mounted},
    units::{disk_of, places_of},
};

const PLACES: [&str; 2] = ["/mnt/data", "/srv/data"];

fn vdb() -> Device {
    device(1, Some("s-data"))
}

fn node() -> Wanted {
    shared(wanted("data"))
}

fn seeding() -> Wanted {
    Wanted {
        seed_from: SeedFrom::Existing,
        ..node()
    }
}

/// A blank disk, and this number of entries at each place.
fn blank_world(disk: &Wanted, entries: u64, systemd: bool) -> World {
    let mut seen = seen(std::slice::from_ref(disk), vec![vdb()], vec![("data", blank())]);
    seen.systemd = systemd;
    for path in PLACES {
        seen.mount_points.insert(
            path.to_owned(),
            MountPoint {
                exists: entries > 0,
                entries,
                ..MountPoint::default()
            },
        );
    }
    World {
        seen,
        journal: journal(vec![]),
        inner: BTreeMap::new(),
        directories: BTreeMap::new(),
    }
}

/// State with the disk mounted at all its places.
fn arrived(disk: &Wanted) -> World {
    let mut world = blank_world(disk, 0, true);
    let all = std::slice::from_ref(disk);
    let plan = world.plan(all);
    world.apply(all, &plan);
    assert!(world.plan(all).is_empty());
    world
}

/// State after a boot: units are started if their source exists.
fn boot(world: &mut World, disk: &Wanted) {
    world.seen.mounts.clear();
    world.seen.devices[0].uses.clear();
    world.seen.boot_id.push('+');
    let whole = private_mount_point("data");
    let units = |world: &World, path: &str| {
        let mut ours = world.seen.files.values().filter(|text| text.contains("data"));
        world.seen.systemd && ours.any(|text| places_of(text).contains(&path) && disk_of(text).is_some())
    };
    let uuid = fs_uuid("data");
    let made =
        matches!(&world.seen.probes["data"], Probe::HasData(content) if content.uuid.as_ref() == Some(&uuid));
    if !made || !units(world, &whole) {
        return;
    }
    world.seen.mounts.push(Mounted {
        mount_point: whole.clone(),
        number: vdb().id.number,
        root: "/".into(),
        filesystem: "ext4".into(),
        options: vec!["rw".into()],
        filesystem_bytes: Some(vdb().id.size),
        owner: disk.owner.clone(),
    });
    world.seen.devices[0].uses.push(Use::Mounted(whole.clone()));
    for bind in &disk.binds {
        if units(world, &bind.path)
            && world
                .directories
                .contains_key(&("data".into(), bind.directory.clone()))
        {
            world.bind(disk, vdb().id.number, &whole, &bind.directory, &bind.path);
            world.seen.devices[0].uses.push(Use::Mounted(bind.path.clone()));
        }
    }
}

#[test]
fn blank_disk_is_formatted_and_bound_at_each_place() {
    let disk = node();
    let world = blank_world(&disk, 0, true);
    let plan = one(&disk, &world.seen, &world.journal);
    let expected = [
        "format",
        "mount",
        "own",
        "make-mount-point",
        "make-directory",
        "bind",
        "make-mount-point",
        "make-directory",
        "bind",
    ];
    assert_eq!(words(&plan), expected);
    let files: Vec<&str> = plan
        .steps
        .iter()
        .filter_map(|step| match step {
            DiskStep::WriteFile { path, .. } => path.rsplit('/').next(),
            _ => None,
        })
        .collect();
    for unit in [
        "mnt-data.mount",
        "srv-data.mount",
        "var-lib-virtfleet\\x2ddisks-data.mount",
    ] {
        assert!(files.contains(&unit), "{files:?}");
    }
}

#[test]
fn runs_complete_after_a_kill_at_any_step() {
    for (disk, entries) in [(node(), 0), (seeding(), 3), (seeding(), 0)] {
        for systemd in [true, false] {
            let all = std::slice::from_ref(&disk);
            let steps = blank_world(&disk, entries, systemd).plan(all).disks[0]
                .steps
                .len();
            assert!(steps > 6);
            for kill in 0..=steps {
                for boots in [false, true] {
                    let at = format!(
                        "entries {entries}, systemd {systemd}, boot {boots}, after {kill} of {steps} steps"
                    );
                    let mut world = blank_world(&disk, entries, systemd);
                    let plan = world.plan(all);
                    world.apply_first(all, &plan, kill);
                    if boots {
                        boot(&mut world, &disk);
                    }
                    let plan = world.plan(all);
                    assert_eq!(plan.disks[0].refusals, [], "{at}");
                    let formatted = plan.disks[0].steps.iter().any(DiskStep::destroys);
                    assert_eq!(formatted, kill == 0, "{at}");
                    world.apply(all, &plan);
                    assert!(world.plan(all).is_empty(), "{at}: {:?}", world.plan(all));
                    let bound = PLACES
                        .iter()
                        .all(|path| world.seen.mounts.iter().any(|mount| mount.mount_point == *path));
                    assert!(bound, "{at}");
                    // All files of the places are in the directories.
                    assert_eq!(
                        world.directories.values().copied().collect::<Vec<_>>(),
                        [entries; 2],
                        "{at}"
                    );
                    let entry = &world.journal.entries[0];
                    assert!(
                        entry.binds.len() == 2 && entry.binds.iter().all(|record| record.used),
                        "{at}"
                    );
                }
            }
        }
    }
}

#[test]
fn files_at_a_place_refuse_the_whole_disk() {
    let disk = node();
    let mut world = blank_world(&disk, 0, true);
    world.seen.mount_points.get_mut(PLACES[1]).unwrap().entries = 2;
    let plan = one(&disk, &world.seen, &world.journal);
    assert_eq!(
        (plan.steps.len(), refusal(&plan)),
        (0, Some(RefusalKind::MountPointTaken))
    );
    let mut busy = blank_world(&seeding(), 2, true);
    busy.seen.mount_points.get_mut(PLACES[0]).unwrap().busy = vec!["containerd (7)".into()];
    let plan = one(&seeding(), &busy.seen, &busy.journal);
    assert_eq!(
        (plan.steps.len(), refusal(&plan)),
        (0, Some(RefusalKind::MountPointTaken))
    );
    assert!(plan.refusals[0].message.contains("containerd (7)"));
}

#[test]
fn place_refused_later_keeps_units_and_other_places() {
    let disk = node();
    let mut world = arrived(&disk);
    // It was unmounted, and a process uses the root disk's directory now.
    world.seen.mounts.retain(|mount| mount.mount_point != PLACES[0]);
    let point = world.seen.mount_points.get_mut(PLACES[0]).unwrap();
    (point.entries, point.busy) = (1, vec!["containerd (7)".into()]);
    let plan = one(&disk, &world.seen, &world.journal);
    assert_eq!(
        (plan.steps.len(), refusal(&plan)),
        (0, Some(RefusalKind::MountPointTaken))
    );
    // Without the process it is mounted again, over the new files: the journal records the
    // directory as in use.
    world.seen.mount_points.get_mut(PLACES[0]).unwrap().busy.clear();
    let plan = one(&disk, &world.seen, &world.journal);
    assert_eq!(words(&plan), ["make-directory", "bind"]);
    assert!(
        plan.notes.iter().any(|note| note.contains("hidden")),
        "{:?}",
        plan.notes
    );
    // Without the journal's record the mount would hide the files without permission.
    world.journal.entries[0].binds.clear();
    let plan = one(&disk, &world.seen, &world.journal);
    assert_eq!(refusal(&plan), Some(RefusalKind::MountPointTaken));
    assert_eq!(
        words(&plan),
        ["remember-bind"],
        "the other place is in use nevertheless"
    );
    // A place that was never mounted gets no unit while it is refused.
    let unit = "/etc/systemd/system/mnt-data.mount";
    world.seen.files.remove(unit).unwrap();
    let plan = one(&disk, &world.seen, &world.journal);
    let writes = |step: &DiskStep| matches!(step, DiskStep::WriteFile { path, .. } if path == unit);
    assert!(!plan.steps.iter().any(writes), "{:?}", plan.steps);
}

#[test]
fn foreign_mount_at_a_place_refuses_it() {
    let disk = node();
    let whole = arrived(&disk);
    for (number, root) in [
        (DevNumber { major: 1, minor: 1 }, "/mnt-data"),
        (vdb().id.number, "/srv-data"),
        (vdb().id.number, "/"),
    ] {
        let mut world = whole.clone();
        let mounts = &mut world.seen.mounts;
        let mount = mounts
            .iter_mut()
            .find(|mount| mount.mount_point == PLACES[0])
            .unwrap();
        (mount.number, mount.root) = (number, root.into());
        let plan = one(&disk, &world.seen, &world.journal);
        assert_eq!(
            (plan.steps.len(), refusal(&plan)),
            (0, Some(RefusalKind::MountPointTaken)),
            "{root}"
        );
    }
}

#[test]
fn removed_and_restored_place_keeps_its_files() {
    let disk = node();
    let mut fewer = disk.clone();
    let gone = fewer.binds.remove(0);
    let mut world = arrived(&disk);
    let plan = one(&fewer, &world.seen, &world.journal);
    assert!(
        matches!(&plan.steps[..], [DiskStep::RemoveFile { path }, DiskStep::WriteFile { path: wants, .. }]
            if path.ends_with("/mnt-data.mount") && wants.contains("multi-user.target.d")),
        "{:?}",
        plan.steps
    );
    assert!(
        plan.notes
            .iter()
            .any(|note| note.contains("/mnt/data is no longer a place")),
        "{:?}",
        plan.notes
    );
    let all = std::slice::from_ref(&fewer);
    let plan = world.plan(all);
    world.apply(all, &plan);
    boot(&mut world, &fewer);
    assert!(world.plan(all).is_empty());
    assert!(
        one(&fewer, &world.seen, &world.journal).notes.is_empty(),
        "it is no longer mounted"
    );
    assert!(
        world
            .directories
            .contains_key(&("data".into(), gone.directory.clone()))
    );
    let plan = one(&disk, &world.seen, &world.journal);
    assert_eq!(words(&plan), ["make-directory", "bind"]);
    // If only the whole filesystem is unmounted, the refusal names the missing mount.
    let mut world = arrived(&disk);
    world
        .seen
        .mounts
        .retain(|mount| PLACES.contains(&mount.mount_point.as_str()));
    world.seen.devices[0]
        .uses
        .retain(|used| matches!(used, Use::Mounted(at) if PLACES.contains(&at.as_str())));
    let plan = one(&disk, &world.seen, &world.journal);
    assert_eq!(refusal(&plan), Some(RefusalKind::InUse));
    assert!(
        plan.refusals[0].remedy.contains("/var/lib/virtfleet-disks/data"),
        "{:?}",
        plan.refusals
    );
}

/// A new filesystem does not inherit the journal's records about the directories of its
/// predecessor.
#[test]
fn bind_records_of_another_filesystem_are_ignored() {
    let disk = Wanted {
        ephemeral: true,
        ..seeding()
    };
    let mut world = blank_world(&disk, 2, true);
    world.journal.entries.push(Entry {
        binds: disk
            .binds
            .iter()
            .map(|bind| BindRecord {
                directory: bind.directory.clone(),
                path: bind.path.clone(),
                used: true,
                copied: None,
            })
            .collect(),
        ..entry("data", &vdb(), Progress::Used)
    });
    let plan = one(&disk, &world.seen, &world.journal);
    assert_eq!(
        plan.steps
            .iter()
            .filter(|step| step.word() == "fill-directory")
            .count(),
        2
    );
}

/// The files of a disk with a `mountPoint` do not mention places.
#[test]
fn places_do_not_change_files_of_other_disks() {
    let disk = wanted("data");
    let world = {
        let mut world = blank_world(&disk, 0, true);
        let all = std::slice::from_ref(&disk);
        let plan = world.plan(all);
        assert_eq!(words(&plan.disks[0]), ["format", "make-mount-point", "mount"]);
        world.apply(all, &plan);
        world
    };
    let texts = [
        serde_json::to_string(&disk).unwrap(),
        serde_json::to_string(&world.journal.entries).unwrap(),
        serde_json::to_string(&crate::disks::state::DiskState::default()).unwrap(),
    ];
    for text in texts {
        assert!(!text.contains("binds") && !text.contains("places"), "{text}");
    }
    let files: Vec<&String> = world.seen.files.keys().collect();
    assert_eq!(files.len(), 3, "{files:?}");
}

/// The agent writes no unit for such a filesystem, so it mounts no directory of it.
#[test]
fn missing_places_of_a_btrfs_on_several_devices_are_refused() {
    let disk = Wanted {
        filesystem: DiskFilesystem::Btrfs,
        grow: true,
        ..node()
    };
    let probe = |devices| {
        Probe::HasData(Content {
            devices: Some(devices),
            ..content("btrfs", Some(&fs_uuid("data")))
        })
    };
    let planned = |devices| {
        let probes = vec![("data", probe(devices))];
        let mut seen = seen(std::slice::from_ref(&disk), vec![vdb()], probes);
        seen.mounts.push(Mounted {
            mount_point: disk.mount_point.clone().unwrap(),
            number: vdb().id.number,
            root: "/".to_owned(),
            filesystem: "btrfs".to_owned(),
            options: vec!["rw".to_owned()],
            filesystem_bytes: Some(GIB / 2),
            owner: None,
        });
        one(&disk, &seen, &journal(vec![]))
    };
    let plan = planned(2);
    assert_eq!(words(&plan), ["remember"]);
    let refused: Vec<_> = plan
        .refusals
        .iter()
        .map(|one| (one.kind, one.facts[0].1.as_str()))
        .collect();
    assert_eq!(refused, PLACES.map(|path| (RefusalKind::SeveralDevices, path)));
    // On one device they are mounted, and the filesystem grows.
    let plan = planned(1);
    let has = |word: &str| words(&plan).contains(&word);
    assert!(plan.refusals.is_empty() && has("bind") && has("grow"), "{plan:?}");
}
