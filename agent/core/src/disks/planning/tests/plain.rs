//! What is on the disk and in the journal, and what follows from it.

use virtfleet_wire::settings::ProofKind;

use super::*;
use crate::disks::{
    journal::{Approval, Entry, Evidence, Progress},
    probe::{Content, Probe},
    wanted::Key,
};

const MAKE: [&str; 2] = ["format", "mount"];
const REMAKE: [&str; 3] = ["clear-unfinished", "format", "mount"];
const TAKE: [&str; 1] = ["mount"];
const NONE: [&str; 0] = [];

fn disk() -> Wanted {
    wanted("data")
}

fn vdb() -> Device {
    device(1, Some("s-data"))
}

use crate::disks::device::Device;

fn planned(disk: &Wanted, probe: Probe, entries: Vec<Entry>) -> DiskPlan {
    let seen = seen(std::slice::from_ref(disk), vec![vdb()], vec![("data", probe)]);
    one(disk, &seen, &journal(entries))
}

fn at(progress: Progress) -> Vec<Entry> {
    vec![entry("data", &vdb(), progress)]
}

#[test]
fn without_a_journal_only_the_disk_speaks() {
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
fn several_signatures_are_foreign_even_when_one_is_what_was_asked_for() {
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
fn what_was_made_before_and_is_blank_now_is_refused() {
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
fn a_disk_under_a_new_name_is_still_the_disk_that_was_made() {
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
fn an_intent_of_another_device_is_none_of_this_one() {
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

fn begun(complete: Option<bool>) -> Probe {
    Probe::HasData(Content {
        complete,
        ..content("ext4", Some(&fs_uuid("data")))
    })
}

#[test]
fn an_unfinished_mkfs_is_taken_cleared_or_refused() {
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
        (begun(None), intended(), &NONE[..], Some(Unreadable)),
        (data("", None), intended(), &REMAKE[..], None),
        (data("", None), other_boot, &NONE[..], Some(Unfinished)),
        (data("", None), other_seq, &NONE[..], Some(Unfinished)),
        (data("", None), no_seq, &NONE[..], Some(Unfinished)),
        (data("", None), other_number, &NONE[..], Some(Unfinished)),
        (data("", None), grown, &NONE[..], Some(Unfinished)),
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
            let Step::Format(intent) = &plan.steps[1] else {
                panic!()
            };
            assert_eq!(intent.evidence, entry.evidence);
        }
    }
}

#[test]
fn nothing_is_cleared_once_the_filesystem_was_complete() {
    for progress in [
        Progress::Encrypted,
        Progress::Formatted,
        Progress::Seeding,
        Progress::Seeded,
        Progress::Used,
    ] {
        for probe in [begun(Some(false)), begun(None), data("", None)] {
            let plan = planned(&disk(), probe.clone(), at(progress));
            assert!(!plan.steps.iter().any(Step::destroys), "{progress:?} {probe:?}");
        }
    }
}

#[test]
fn an_unfinished_filesystem_that_turns_up_elsewhere_is_not_approvable() {
    let elsewhere = Entry {
        key: Key::Serial("other".into()),
        ..at(Progress::Intended).remove(0)
    };
    let plan = planned(&disk(), begun(Some(false)), vec![elsewhere]);
    assert_eq!(refusal(&plan), Some(RefusalKind::Unfinished));
    assert_eq!(plan.refusals[0].evidence, "");
}

#[test]
fn data_with_another_uuid_than_the_journals_is_mounted_with_a_note() {
    let plan = planned(&disk(), data("ext4", Some(FOREIGN)), at(Progress::Used));
    assert_eq!(words(&plan), TAKE);
    assert!(plan.notes[0].contains(FOREIGN), "{:?}", plan.notes);
    let plan = planned(&disk(), begun(None), at(Progress::Used));
    assert_eq!((words(&plan), plan.notes.len()), (TAKE.to_vec(), 0));
}

#[test]
fn an_approval_is_for_one_name_and_one_evidence_and_never_for_known_data() {
    use RefusalKind::{BlankAgain, ForeignData, Unfinished, UnknownData};
    let other_boot = Entry {
        boot_id: "boot-1".into(),
        ..at(Progress::Intended).remove(0)
    };
    for (probe, entries, kind) in [
        (data("", None), vec![], UnknownData),
        (data("", None), at(Progress::Used), UnknownData),
        (blank(), at(Progress::Used), BlankAgain),
        (data("", None), vec![other_boot], Unfinished),
    ] {
        let disk = disk();
        let seen = seen(std::slice::from_ref(&disk), vec![vdb()], vec![("data", probe)]);
        let mut journal = journal(entries);
        let refused = one(&disk, &seen, &journal);
        assert_eq!(refusal(&refused), Some(kind));
        let hash = refused.refusals[0].evidence.clone();
        let approve = |name: &str, hash: &str| Approval {
            name: name.into(),
            hash: hash.into(),
            at_ns: 1,
        };
        journal.approvals = vec![
            approve("other", &hash),
            approve("data", &"0".repeat(64)),
            approve("data", ""),
        ];
        assert_eq!(one(&disk, &seen, &journal), refused, "neither of these is for it");
        journal.approvals.push(approve("data", &hash));
        let approved = one(&disk, &seen, &journal);
        assert_eq!(words(&approved), MAKE);
        let Step::Format(intent) = &approved.steps[0] else {
            panic!()
        };
        assert!(matches!(&intent.evidence, Evidence::Approved { hash: approved, .. } if *approved == hash));
        let changed = Seen {
            probes: [(
                "data".to_owned(),
                Probe::HasData(Content {
                    digest: "d2".into(),
                    ..content("", None)
                }),
            )]
            .into(),
            ..seen
        };
        assert!(
            one(&disk, &changed, &journal).steps.is_empty(),
            "what is there has changed since"
        );
    }
    let disk = disk();
    let seen = seen(
        std::slice::from_ref(&disk),
        vec![vdb()],
        vec![("data", data("xfs", None))],
    );
    let mut journal = journal(vec![]);
    journal.approvals = vec![Approval {
        name: "data".into(),
        hash: String::new(),
        at_ns: 1,
    }];
    assert_eq!(refusal(&one(&disk, &seen, &journal)), Some(ForeignData));
}

#[test]
fn a_proof_that_read_less_than_asked_for_is_none() {
    let full = Wanted {
        proof: ProofKind::Full,
        ..disk()
    };
    assert_eq!(
        refusal(&planned(&full, blank(), vec![])),
        Some(RefusalKind::Unreadable)
    );
    let proof = |bytes| {
        Probe::Blank(crate::disks::Blankness {
            proof: ProofKind::Full,
            regions: 1,
            bytes,
        })
    };
    assert_eq!(words(&planned(&full, proof(GIB), vec![])), MAKE);
    assert_eq!(
        refusal(&planned(&full, proof(0), vec![])),
        Some(RefusalKind::Unreadable)
    );
}

#[test]
fn a_disk_that_may_be_shared_is_mounted_and_never_made() {
    let shared = Wanted {
        shared: true,
        ..disk()
    };
    for probe in [blank(), data("", None), begun(Some(false))] {
        for entries in [vec![], at(Progress::Intended)] {
            let plan = planned(&shared, probe.clone(), entries);
            assert!(!plan.steps.iter().any(Step::destroys), "{probe:?}");
        }
    }
    assert_eq!(
        refusal(&planned(&shared, blank(), vec![])),
        Some(RefusalKind::MaybeShared)
    );
    assert_eq!(
        words(&planned(&shared, data("ext4", Some(FOREIGN)), vec![])),
        TAKE
    );
}

#[test]
fn by_position_only_our_own_data_is_mounted() {
    let disk = positional("data", 1);
    let device = Device {
        id: crate::disks::DeviceId {
            serial: None,
            ..vdb().id
        },
        ..vdb()
    };
    for (probe, steps, refused) in [
        (blank(), &MAKE[..], None),
        (data("ext4", Some(&fs_uuid("data"))), &TAKE[..], None),
        (
            data("ext4", Some(FOREIGN)),
            &NONE[..],
            Some(RefusalKind::ForeignData),
        ),
        (
            data("ext4", Some(&fs_uuid("other"))),
            &NONE[..],
            Some(RefusalKind::ForeignData),
        ),
    ] {
        let seen = seen(
            std::slice::from_ref(&disk),
            vec![device.clone()],
            vec![("data", probe.clone())],
        );
        let plan = one(&disk, &seen, &journal(vec![]));
        assert_eq!((&words(&plan)[..], refusal(&plan)), (steps, refused), "{probe:?}");
        assert_eq!(plan.key, Some(Key::Position { size: GIB, order: 1 }));
    }
}

#[test]
fn the_same_uuid_on_two_devices_stops_both() {
    let disk = disk();
    let clone = device(2, Some("clone"));
    for probe in [blank(), begun(None)] {
        let mut seen = seen(
            std::slice::from_ref(&disk),
            vec![vdb(), clone.clone()],
            vec![("data", probe)],
        );
        seen.uuids
            .insert(fs_uuid("data"), vec![vdb().id, clone.id.clone()]);
        assert_eq!(
            refusal(&one(&disk, &seen, &journal(vec![]))),
            Some(RefusalKind::DuplicateUuid)
        );
    }
    let both = [wanted("data"), wanted("b")];
    let seen = seen(
        &both,
        vec![vdb(), device(2, Some("s-b"))],
        vec![
            ("data", data("ext4", Some(FOREIGN))),
            ("b", data("ext4", Some(FOREIGN))),
        ],
    );
    for disk in plan(&both, &[], &seen, &journal(vec![])).disks {
        assert_eq!(refusal(&disk), Some(RefusalKind::DuplicateUuid));
    }
}

#[test]
fn a_filesystem_that_is_larger_than_its_disk_is_not_mounted() {
    let probe = Probe::HasData(Content {
        filesystem_bytes: Some(GIB + 1),
        ..content("ext4", Some(FOREIGN))
    });
    assert_eq!(
        refusal(&planned(&disk(), probe, vec![])),
        Some(RefusalKind::NotEligible)
    );
}

#[test]
fn nothing_is_made_without_a_uuid_of_the_vm_or_a_tool_or_a_journal() {
    let disk = disk();
    let good = seen(std::slice::from_ref(&disk), vec![vdb()], vec![("data", blank())]);
    let no_vm = Seen {
        vm_uuid: String::new(),
        ..good.clone()
    };
    let no_tool = Seen {
        missing_tools: ["mkfs.ext4".to_owned()].into(),
        ..good.clone()
    };
    assert_eq!(
        refusal(&one(&disk, &no_vm, &journal(vec![]))),
        Some(RefusalKind::NotEligible)
    );
    assert_eq!(
        refusal(&one(&disk, &no_tool, &journal(vec![]))),
        Some(RefusalKind::NoTool)
    );
    let newer = Entry {
        format: FORMAT + 1,
        ..at(Progress::Intended).remove(0)
    };
    assert_eq!(
        refusal(&one(&disk, &good, &journal(vec![newer]))),
        Some(RefusalKind::NoJournal)
    );
    for (whose, refused) in [("data", true), ("", true), ("other", false)] {
        let journal = Journal {
            broken: vec![(whose.into(), "not JSON".into())],
            ..Journal::default()
        };
        let plan = one(&disk, &good, &journal);
        assert_eq!(refusal(&plan) == Some(RefusalKind::NoJournal), refused, "{whose}");
        assert_eq!(plan.steps.is_empty(), refused);
    }
}

#[test]
fn a_format_step_says_all_that_a_second_look_must_find() {
    let plan = planned(&disk(), blank(), vec![]);
    let Step::Format(intent) = &plan.steps[0] else {
        panic!()
    };
    assert_eq!((intent.name.as_str(), &intent.device), ("data", &vdb().id));
    assert_eq!(intent.uuid, fs_uuid("data"));
    assert!(intent.arguments.contains(&intent.uuid));
    assert!(matches!(intent.evidence, Evidence::Blank(_)));
}

#[test]
fn a_disk_that_is_not_there_is_refused_only_when_it_is_required() {
    for required in [true, false] {
        let disk = Wanted { required, ..disk() };
        let plan = one(
            &disk,
            &seen(std::slice::from_ref(&disk), vec![], vec![]),
            &journal(vec![]),
        );
        assert_eq!(refusal(&plan), required.then_some(RefusalKind::Missing));
        assert_eq!(plan.notes.len(), usize::from(!required));
    }
}

#[test]
fn a_disk_that_nobody_looked_at_is_unreadable() {
    let disk = disk();
    let seen = seen(std::slice::from_ref(&disk), vec![vdb()], vec![]);
    assert_eq!(
        refusal(&one(&disk, &seen, &journal(vec![]))),
        Some(RefusalKind::Unreadable)
    );
}
