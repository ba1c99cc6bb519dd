//! A disk that was provisioned without a serial and has one later: after a restart of the VM with
//! a serial in its spec, and with settings that match by it.

use virtfleet_wire::settings::DiskFilesystem;

use super::{world::World, *};
use crate::disks::{
    device::{Carried, Device},
    plan::RefusalKind,
};

/// How the settings match before the disk has a serial.
fn matched_otherwise() -> Vec<Wanted> {
    let positional = positional("data", 1);
    let path = Wanted {
        size: None,
        order: None,
        path: Some("pci-0000:01:00.0".into()),
        ..positional.clone()
    };
    let both = Wanted {
        size: Some(GIB),
        ..path.clone()
    };
    vec![positional, path, both]
}

/// Kinds of disks: plain, with places, encrypted, swap.
fn kinds(disk: &Wanted) -> Vec<Wanted> {
    let encrypted = Wanted {
        encryption: encrypted("data").encryption,
        ..disk.clone()
    };
    let swap = Wanted {
        filesystem: DiskFilesystem::Swap,
        mount_point: None,
        ..disk.clone()
    };
    vec![disk.clone(), shared(disk.clone()), encrypted, swap]
}

/// A guest in which the disk is provisioned without a serial.
fn provisioned(disk: &Wanted) -> World {
    let all = std::slice::from_ref(disk);
    let mut world = World {
        seen: seen(all, vec![device(1, None)], vec![("data", blank())]),
        journal: journal(vec![]),
        inner: BTreeMap::new(),
        directories: BTreeMap::new(),
    };
    let plan = world.plan(all);
    assert!(plan.disks[0].refusals.is_empty(), "{plan:?}");
    world.apply(all, &plan);
    world
}

/// The same guest after a restart: the disk has this serial, and the boot has mounted nothing.
fn restarted(mut world: World, serial: Option<&str>) -> World {
    let carried = world.journal.entries[0].luks_uuid.clone();
    let carried = carried.unwrap_or_else(|| world.journal.entries[0].uuid.clone());
    let now = Device {
        carried: Carried::Uuid(carried),
        ..device(1, serial)
    };
    for carriers in world.seen.uuids.values_mut() {
        *carriers = vec![now.id.clone()];
    }
    for mapping in std::mem::take(&mut world.seen.mappings).into_values() {
        world.inner.insert("data".into(), mapping.probe);
    }
    world.seen.devices = vec![now];
    world.seen.mounts.clear();
    world.seen.swaps.clear();
    world.seen.boot_id = "boot-3".into();
    world
}

fn by_serial(disk: &Wanted) -> Wanted {
    Wanted {
        serial: Some("s-data".into()),
        size: None,
        order: None,
        path: None,
        ..disk.clone()
    }
}

/// Neither a serial nor settings that match by it change what is done with the disk.
#[test]
fn later_serial_changes_nothing_of_a_provisioned_disk() {
    for before in matched_otherwise().iter().flat_map(kinds) {
        let expected = {
            let world = restarted(provisioned(&before), None);
            words(&one(&before, &world.seen, &world.journal))
        };
        assert!(!expected.is_empty());
        // With the old settings, then with those that match by serial; and at once.
        for after in [vec![before.clone(), by_serial(&before)], vec![by_serial(&before)]] {
            let mut world = provisioned(&before);
            for disk in after {
                world = restarted(world, Some("s-data"));
                let all = std::slice::from_ref(&disk);
                let plan = world.plan(all);
                assert_eq!(refusal(&plan.disks[0]), None, "{disk:?}: {plan:?}");
                assert_eq!(words(&plan.disks[0]), expected, "{disk:?}");
                world.apply(all, &plan);
                // Nothing is left to do.
                let again = world.plan(all);
                assert!(
                    again.disks[0].steps.is_empty() && again.disks[0].refusals.is_empty(),
                    "{disk:?}: {again:?}"
                );
            }
        }
    }
}

/// A blank disk under the same name is not taken for a new one only because it has a serial.
#[test]
fn blank_disk_with_a_later_serial_is_refused() {
    for before in matched_otherwise() {
        let mut world = restarted(provisioned(&before), Some("s-data"));
        world.seen.probes.insert("data".into(), blank());
        world.seen.uuids.clear();
        world.seen.devices[0].carried = Carried::Nothing;
        let plan = one(&by_serial(&before), &world.seen, &world.journal);
        assert_eq!(refusal(&plan), Some(RefusalKind::BlankAgain), "{before:?}");
    }
}
