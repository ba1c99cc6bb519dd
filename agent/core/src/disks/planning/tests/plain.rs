//! Content of the disk and the journal, and the resulting plans.

use super::*;
use crate::disks::{
    device::Device,
    journal::{Entry, Progress},
    probe::{Content, Left, Probe},
    wanted::Key,
};

pub(super) const MAKE: [&str; 2] = ["format", "mount"];
const REMAKE: [&str; 3] = ["clear-unfinished", "format", "mount"];
pub(super) const TAKE: [&str; 1] = ["mount"];
pub(super) const NONE: [&str; 0] = [];

pub(super) fn disk() -> Wanted {
    wanted("data")
}

pub(super) fn vdb() -> Device {
    device(1, Some("s-data"))
}

pub(super) fn planned(disk: &Wanted, probe: Probe, entries: Vec<Entry>) -> DiskPlan {
    let seen = seen(std::slice::from_ref(disk), vec![vdb()], vec![("data", probe)]);
    one(disk, &seen, &journal(entries))
}

pub(super) fn at(progress: Progress) -> Vec<Entry> {
    vec![entry("data", &vdb(), progress)]
}

#[test]
fn without_journal_the_content_decides() {
    use RefusalKind::{ForeignData, UnknownData, Unreadable};
    for (probe, steps, refused) in [
        (blank(), &MAKE[..], None),
        (data("ext4", Some(FOREIGN)), &TAKE[..], None),
        (data("ext4", Some(&fs_uuid("data"))), &TAKE[..], None),
        (data("ext4", None), &NONE[..], Some(ForeignData)),
        (data("xfs", Some(FOREIGN)), &NONE[..], Some(ForeignData)),
        (data("xfs", Some(&fs_uuid("data"))), &NONE[..], Some(ForeignData)),
        (data("crypto_LUKS", Some(FOREIGN)), &NONE[..], Some(ForeignData)),
        (data("mvbd", None), &NONE[..], Some(ForeignData)),
        (data("gpt", None), &NONE[..], Some(ForeignData)),
        (data("", None), &NONE[..], Some(UnknownData)),
        (unknown(), &NONE[..], Some(Unreadable)),
    ] {
        let plan = planned(&disk(), probe.clone(), vec![]);
        assert_eq!((&words(&plan)[..], refusal(&plan)), (steps, refused), "{probe:?}");
    }
}

#[test]
fn several_signatures_are_foreign() {
    for kind in ["ext4", ""] {
        let probe = Probe::HasData(Content {
            also: vec!["zfs_member".into()],
            ..content(kind, Some(&fs_uuid("data")))
        });
        for entries in [vec![], at(Progress::Intended), at(Progress::Used)] {
            assert_eq!(
                refusal(&planned(&disk(), probe.clone(), entries)),
                Some(RefusalKind::ForeignData)
            );
        }
    }
}

#[test]
fn blank_disk_with_journal_entry_is_refused() {
    use Progress::{Encrypted, Formatted, Intended, Seeded, Seeding, Used};
    for (progress, ephemeral, steps) in [
        (Intended, false, &MAKE[..]),
        (Encrypted, false, &NONE[..]),
        (Formatted, false, &NONE[..]),
        (Seeding, false, &NONE[..]),
        (Seeded, false, &NONE[..]),
        (Used, false, &NONE[..]),
        (Used, true, &MAKE[..]),
        (Formatted, true, &MAKE[..]),
    ] {
        let disk = Wanted { ephemeral, ..disk() };
        let plan = planned(&disk, blank(), at(progress));
        assert_eq!(words(&plan), steps, "{progress:?} {ephemeral}");
        let refused = steps.is_empty().then_some(RefusalKind::BlankAgain);
        assert_eq!(refusal(&plan), refused, "{progress:?} {ephemeral}");
    }
}

#[test]
fn renamed_disk_is_recognised() {
    let named = |name: &str, progress| Entry {
        name: name.into(),
        ..at(progress).remove(0)
    };
    let other_key = Entry {
        key: Key::Serial("other".into()),
        ..named("former", Progress::Used)
    };
    for (entry, ephemeral, made) in [
        (named("former", Progress::Used), false, false),
        (named("former", Progress::Formatted), false, false),
        (named("former", Progress::Intended), false, true),
        (named("former", Progress::Used), true, true),
        (other_key, false, true),
    ] {
        let disk = Wanted { ephemeral, ..disk() };
        let plan = planned(&disk, blank(), vec![entry.clone()]);
        assert_eq!(words(&plan) == MAKE, made, "{entry:?}");
        assert_eq!(
            refusal(&plan) == Some(RefusalKind::BlankAgain),
            !made,
            "{entry:?}"
        );
    }
}

#[test]
fn intent_of_another_device_is_ignored() {
    let grown = Entry {
        device: crate::disks::DeviceId {
            size: GIB / 2,
            ..vdb().id
        },
        ..at(Progress::Intended).remove(0)
    };
    let shrunk = Entry {
        device: crate::disks::DeviceId {
            size: GIB * 2,
            ..vdb().id
        },
        ..grown.clone()
    };
    let other_serial = Entry {
        device: crate::disks::DeviceId {
            serial: Some("other".into()),
            ..vdb().id
        },
        ..grown.clone()
    };
    let other_key = Entry {
        key: Key::Path("pci-0000:09:00.0".into()),
        ..grown.clone()
    };
    assert_eq!(words(&planned(&disk(), blank(), vec![grown])), MAKE);
    for entry in [shrunk, other_serial, other_key] {
        let plan = planned(&disk(), blank(), vec![entry.clone()]);
        assert_eq!(refusal(&plan), Some(RefusalKind::BlankAgain), "{entry:?}");
        let plan = planned(&disk(), data("", None), vec![entry.clone()]);
        assert_eq!(refusal(&plan), Some(RefusalKind::UnknownData), "{entry:?}");
        assert_eq!(
            words(&planned(&disk(), data("ext4", Some(FOREIGN)), vec![entry])),
            TAKE
        );
    }
}

pub(super) fn begun(complete: Option<bool>) -> Probe {
    begun_with(complete, Some(Left::Tool))
}

fn begun_with(complete: Option<bool>, left: Option<Left>) -> Probe {
    Probe::HasData(Content {
        complete,
        left,
        ..content("ext4", Some(&fs_uuid("data")))
    })
}

/// Unknown data and its origin.
pub(super) fn bytes(left: Option<Left>) -> Probe {
    Probe::HasData(Content {
        left,
        ..content("", None)
    })
}

#[test]
fn only_provably_own_bytes_are_cleared() {
    let foreign = || Some(Left::Foreign { at: 4096 });
    let used = || {
        Some(Left::User {
            trace: "mounted 2 times".into(),
        })
    };
    for (probe, steps, approvable) in [
        (bytes(Some(Left::Tool)), &REMAKE[..], false),
        (bytes(foreign()), &NONE[..], true),
        (bytes(used()), &NONE[..], true),
        (bytes(None), &NONE[..], true),
        (begun_with(Some(false), Some(Left::Tool)), &REMAKE[..], false),
        (begun_with(Some(false), foreign()), &NONE[..], false),
        (begun_with(Some(false), used()), &NONE[..], false),
        (begun_with(Some(false), None), &NONE[..], false),
        (begun_with(Some(true), foreign()), &NONE[..], false),
        (begun_with(Some(true), used()), &TAKE[..], false),
        (begun_with(Some(true), Some(Left::Tool)), &TAKE[..], false),
        (begun_with(Some(true), None), &TAKE[..], false),
        (begun_with(None, used()), &NONE[..], false),
    ] {
        let plan = planned(&disk(), probe.clone(), at(Progress::Intended));
        assert_eq!(words(&plan), steps, "{probe:?}");
        if steps == NONE {
            assert_eq!(refusal(&plan), Some(RefusalKind::Unfinished), "{probe:?}");
            assert_eq!(!plan.refusals[0].evidence.is_empty(), approvable, "{probe:?}");
        }
    }
}

#[test]
fn partial_proof_is_rejected_after_foreign_writes() {
    let entry = Entry {
        others_wrote: true,
        ..at(Progress::Intended).remove(0)
    };
    let partly = Probe::Blank(crate::disks::Blankness {
        size: 4096,
        bytes: 2048,
        largest_unread: 2048,
        regions: 1,
        writes: crate::disks::WriteMark {
            boot_id: "boot-2".into(),
            diskseq: Some(2),
            counters: crate::disks::WriteCounters::parse("1 2 3 4 5 6 7 8 9 10 11"),
        },
        ..crate::disks::Blankness::default()
    });
    let plan = planned(&disk(), partly, vec![entry.clone()]);
    assert_eq!(refusal(&plan), Some(RefusalKind::Unfinished));
    assert_ne!(plan.refusals[0].evidence, "");
    let whole = Probe::Blank(crate::disks::Blankness {
        size: 4096,
        bytes: 4096,
        largest_unread: 0,
        regions: 1,
        ..crate::disks::Blankness::default()
    });
    assert_eq!(words(&planned(&disk(), whole, vec![entry])), MAKE);
}

#[test]
fn unfinished_mkfs_is_used_cleared_or_refused() {
    use RefusalKind::{ForeignData, Unfinished, Unreadable};
    let intended = || at(Progress::Intended).remove(0);
    let other_boot = Entry {
        boot_id: "boot-1".into(),
        ..intended()
    };
    let other_seq = Entry {
        device: crate::disks::DeviceId {
            diskseq: Some(99),
            ..vdb().id
        },
        ..intended()
    };
    let no_seq = Entry {
        device: crate::disks::DeviceId {
            diskseq: None,
            ..vdb().id
        },
        ..intended()
    };
    let other_number = Entry {
        device: crate::disks::DeviceId {
            number: crate::disks::DevNumber { major: 8, minor: 0 },
            ..vdb().id
        },
        ..intended()
    };
    let grown = Entry {
        device: crate::disks::DeviceId {
            size: GIB / 2,
            ..vdb().id
        },
        ..intended()
    };
    for (probe, entry, steps, refused) in [
        (begun(Some(true)), intended(), &TAKE[..], None),
        (begun(Some(true)), other_boot.clone(), &TAKE[..], None),
        (begun(Some(false)), intended(), &REMAKE[..], None),
        (begun(Some(false)), other_boot.clone(), &REMAKE[..], None),
        (begun(None), intended(), &NONE[..], Some(Unfinished)),
        (data("", None), intended(), &NONE[..], Some(Unfinished)),
        (data("", None), other_boot.clone(), &NONE[..], Some(Unfinished)),
        (bytes(Some(Left::Tool)), intended(), &REMAKE[..], None),
        // After a reboot the device has another number. The origin of the bytes decides, not the
        // time.
        (bytes(Some(Left::Tool)), other_boot, &REMAKE[..], None),
        (bytes(Some(Left::Tool)), other_seq, &REMAKE[..], None),
        (bytes(Some(Left::Tool)), no_seq, &REMAKE[..], None),
        (bytes(Some(Left::Tool)), other_number, &REMAKE[..], None),
        (bytes(Some(Left::Tool)), grown, &REMAKE[..], None),
        (
            data("xfs", Some(FOREIGN)),
            intended(),
            &NONE[..],
            Some(ForeignData),
        ),
        (
            data("xfs", Some(&fs_uuid("data"))),
            intended(),
            &NONE[..],
            Some(ForeignData),
        ),
        (data("ext4", Some(FOREIGN)), intended(), &TAKE[..], None),
        (unknown(), intended(), &NONE[..], Some(Unreadable)),
    ] {
        let plan = planned(&disk(), probe.clone(), vec![entry.clone()]);
        assert_eq!(
            (&words(&plan)[..], refusal(&plan)),
            (steps, refused),
            "{probe:?} {entry:?}"
        );
        if steps == REMAKE {
            let DiskStep::Format(intent) = &plan.steps[1] else {
                panic!()
            };
            assert_eq!(intent.evidence, entry.evidence);
        }
    }
}

#[test]
fn complete_filesystem_is_never_cleared() {
    for progress in [
        Progress::Encrypted,
        Progress::Formatted,
        Progress::Seeding,
        Progress::Seeded,
        Progress::Used,
    ] {
        for probe in [begun(Some(false)), begun(None), bytes(Some(Left::Tool))] {
            let plan = planned(&disk(), probe.clone(), at(progress));
            assert!(
                !plan.steps.iter().any(DiskStep::destroys),
                "{progress:?} {probe:?}"
            );
        }
    }
}

#[test]
fn unfinished_mkfs_on_another_disk_cannot_be_approved() {
    let elsewhere = Entry {
        key: Key::Serial("other".into()),
        ..at(Progress::Intended).remove(0)
    };
    let plan = planned(&disk(), begun(Some(false)), vec![elsewhere]);
    assert_eq!(refusal(&plan), Some(RefusalKind::Unfinished));
    assert_eq!(plan.refusals[0].evidence, "");
}

#[test]
fn changed_uuid_is_mounted_with_a_note() {
    let plan = planned(&disk(), data("ext4", Some(FOREIGN)), at(Progress::Used));
    assert_eq!(words(&plan), TAKE);
    assert!(plan.notes[0].contains(FOREIGN), "{:?}", plan.notes);
    let plan = planned(&disk(), begun(None), at(Progress::Used));
    assert_eq!((words(&plan), plan.notes.len()), (TAKE.to_vec(), 0));
}
