//! Conditions besides the content: approvals, extent of the proof, sharing, position, clones, and
//! missing prerequisites.

use virtfleet_wire::settings::{DiskFilesystem, ProofKind};

use super::{
    plain::{MAKE, NONE, TAKE, at, begun, bytes, disk, planned, vdb},
    *,
};
use crate::disks::{
    device::{Device, MIN_DISK_BYTES, Use},
    journal::{Approval, Entry, Evidence, Progress},
    probe::{Content, Doubt, Left, Probe},
    seen::Mounted,
    wanted::Key,
};

#[test]
fn approval_is_bound_to_name_and_evidence() {
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
            facts: Vec::new(),
        };
        journal.approvals = vec![
            approve("other", &hash),
            approve("data", &"0".repeat(64)),
            approve("data", ""),
        ];
        assert_eq!(
            one(&disk, &seen, &journal),
            refused,
            "neither of these applies to it"
        );
        journal.approvals.push(approve("data", &hash));
        let approved = one(&disk, &seen, &journal);
        assert_eq!(words(&approved), MAKE);
        let DiskStep::Format(intent) = &approved.steps[0] else {
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
            "the content has changed since"
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
        facts: Vec::new(),
    }];
    assert_eq!(refusal(&one(&disk, &seen, &journal)), Some(ForeignData));
}

#[test]
fn proof_weaker_than_requested_is_rejected() {
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
            ..crate::disks::Blankness::default()
        })
    };
    assert_eq!(words(&planned(&full, proof(GIB), vec![])), MAKE);
    assert_eq!(
        refusal(&planned(&full, proof(0), vec![])),
        Some(RefusalKind::Unreadable)
    );
}

#[test]
fn shared_disk_is_mounted_but_never_formatted() {
    let shared = Wanted {
        shared: true,
        ..disk()
    };
    for probe in [blank(), data("", None), begun(Some(false))] {
        for entries in [vec![], at(Progress::Intended)] {
            let plan = planned(&shared, probe.clone(), entries);
            assert!(!plan.steps.iter().any(DiskStep::destroys), "{probe:?}");
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
fn positional_disk_is_mounted_only_with_assigned_uuid() {
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
fn duplicate_uuid_refuses_both_disks() {
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

/// The devices of one btrfs have one UUID by design.
#[test]
fn devices_of_one_btrfs_are_kept_or_refused_and_never_formatted() {
    let btrfs = |disk| Wanted {
        filesystem: DiskFilesystem::Btrfs,
        ephemeral: true,
        ..disk
    };
    let both = ["data", "b"].map(|name| btrfs(wanted(name)));
    let devices = vec![vdb(), device(2, Some("s-b"))];
    let begun = Content {
        complete: Some(false),
        left: Some(Left::Tool),
        ..content("btrfs", Some(&fs_uuid("data")))
    };
    for content in [content("btrfs", Some(FOREIGN)), begun] {
        let probe = Probe::HasData(Content {
            devices: Some(2),
            ..content
        });
        let probes = || ["data", "b"].map(|name| (name, probe.clone())).to_vec();
        for declared in [&both[..1], &both[..]] {
            let mut seen = seen(declared, devices.clone(), probes());
            for plan in plan(declared, &[], &seen, &journal(at(Progress::Intended))).disks {
                let refused = (&words(&plan)[..], refusal(&plan));
                assert_eq!(refused, (&NONE[..], Some(RefusalKind::SeveralDevices)));
                assert!(!plan.refusals[0].remedy.contains("btrfstune"), "{plan:?}");
            }
            // Mounted in the place of the first one; the kernel shows either device as its source.
            for device in &mut seen.devices {
                device.uses.push(Use::Holder(format!("btrfs {FOREIGN}")));
            }
            let members = [0, 1].map(|at| seen.devices[at].id.number);
            seen.btrfs.insert(FOREIGN.to_owned(), members.into());
            // Partitions that the settings do not name, and device mapper, are not listed.
            seen.devices.truncate(declared.len());
            for number in members {
                let mut seen = seen.clone();
                seen.mounts.push(Mounted {
                    mount_point: "/mnt/data".into(),
                    number,
                    root: "/".into(),
                    filesystem: "btrfs".into(),
                    options: vec!["rw".into()],
                    filesystem_bytes: Some(MIN_DISK_BYTES),
                    owner: None,
                });
                // The content of a disk in place is not read.
                if let Some(Probe::HasData(content)) = seen.probes.get_mut("data") {
                    content.devices = None;
                }
                let plans = plan(declared, &[], &seen, &journal(vec![])).disks;
                assert_eq!(words(&plans[0]), ["remember"], "{:?}", plans[0]);
                assert_eq!(refusal(&plans[0]), None);
                assert!(plans[0].notes[0].contains("one filesystem on 2 devices"));
                // A device that cannot be read is not taken for the only one.
                let mut unread = seen.clone();
                unread.devices.iter_mut().for_each(|device| device.uses.clear());
                unread.btrfs.clear();
                let doubt = Doubt {
                    reason: "no answer".into(),
                    passing: true,
                };
                unread.probes.insert("data".into(), Probe::Unknown(doubt));
                let first = plan(declared, &[], &unread, &journal(vec![])).disks.remove(0);
                assert!(first.steps.is_empty(), "{first:?}");
                let other = plans.get(1).map(|plan| (words(plan), refusal(plan)));
                let refused = (vec![], Some(RefusalKind::SeveralDevices));
                assert!(other.is_none_or(|other| other == refused));
            }
        }
    }
    // A copy of a filesystem on one device is still a copy.
    let probe = Probe::HasData(Content {
        devices: Some(1),
        ..content("btrfs", Some(FOREIGN))
    });
    let probes = ["data", "b"].map(|name| (name, probe.clone())).to_vec();
    let seen = seen(&both, devices, probes);
    for disk in plan(&both, &[], &seen, &journal(vec![])).disks {
        assert_eq!(refusal(&disk), Some(RefusalKind::DuplicateUuid));
    }
}

/// `data` was renamed to `b`, whose disk keeps the UUID, and a new disk got the name `data`.
#[test]
fn renamed_disk_keeps_its_uuid() {
    let renamed = device(2, Some("s-b"));
    let old = |luks: bool| Entry {
        uuid: fs_uuid(if luks { "b" } else { "data" }),
        luks_uuid: luks.then(|| luks_uuid("data")),
        ..entry("b", &renamed, Progress::Used)
    };
    let ephemeral = Wanted {
        ephemeral: true,
        ..disk()
    };
    for (disk, entry) in [
        (disk(), old(false)),
        (encrypted("data"), old(true)),
        (ephemeral, old(false)),
    ] {
        // With and without the renamed disk.
        for devices in [vec![vdb(), renamed.clone()], vec![vdb()]] {
            let seen = seen(std::slice::from_ref(&disk), devices, vec![("data", blank())]);
            let plan = one(&disk, &seen, &journal(vec![entry.clone()]));
            let came = (&words(&plan)[..], refusal(&plan));
            assert_eq!(came, (&NONE[..], Some(RefusalKind::DuplicateUuid)), "{disk:?}");
            assert!(plan.refusals[0].message.contains("\"b\""), "{plan:?}");
        }
    }
    // One disk that was renamed and renamed back: its UUID does not belong to another disk.
    let former = Entry {
        name: "b".into(),
        ..entry("data", &vdb(), Progress::Used)
    };
    let disk = disk();
    let seen = seen(std::slice::from_ref(&disk), vec![vdb()], vec![("data", blank())]);
    let plan = one(&disk, &seen, &journal(vec![former]));
    assert_eq!(refusal(&plan), Some(RefusalKind::BlankAgain));
}

#[test]
fn filesystem_larger_than_disk_is_not_mounted() {
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
fn formatting_needs_vm_uuid_tools_and_journal() {
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
fn format_step_has_all_data_for_the_second_probe() {
    let plan = planned(&disk(), blank(), vec![]);
    let DiskStep::Format(intent) = &plan.steps[0] else {
        panic!()
    };
    assert_eq!((intent.name.as_str(), &intent.device), ("data", &vdb().id));
    assert_eq!(intent.uuid, fs_uuid("data"));
    assert!(intent.arguments.contains(&intent.uuid));
    assert!(matches!(intent.evidence, Evidence::Blank(_)));
}

#[test]
fn missing_disk_is_refused_only_if_required() {
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
fn disk_without_probe_is_unreadable() {
    let disk = disk();
    let seen = seen(std::slice::from_ref(&disk), vec![vdb()], vec![]);
    assert_eq!(
        refusal(&one(&disk, &seen, &journal(vec![]))),
        Some(RefusalKind::Unreadable)
    );
}

#[test]
fn cleared_disk_is_formatted_only_if_blank() {
    let approved = Entry {
        evidence: Evidence::Approved {
            place: None,
            writes: crate::disks::WriteMark::default(),
            hash: "h".into(),
            proof: ProofKind::Sampled,
            digest: Some("d1".into()),
        },
        ..at(Progress::Intended).remove(0)
    };
    for probe in [bytes(Some(Left::Tool)), begun(Some(false))] {
        let plan = planned(&disk(), probe, vec![approved.clone()]);
        let [DiskStep::ClearUnfinished(_), DiskStep::Format(intent), ..] = &plan.steps[..] else {
            panic!("{:?}", plan.steps)
        };
        assert!(
            matches!(&intent.evidence, Evidence::Approved { digest: None, .. }),
            "{:?}",
            intent.evidence
        );
    }
}

#[test]
fn configuration_disks_are_never_wiped() {
    let disk = wanted("data");
    for (kind, label, said, wiped) in [
        ("iso9660", "cidata", "NoCloud", false),
        ("mvbd", "", "downwardMetrics", false),
        ("ext3", "data", "holds ext3", true),
        ("gpt", "", "holds gpt", true),
    ] {
        let probe = Probe::HasData(Content {
            label: Some(label.to_owned()),
            ..content(kind, None)
        });
        let device = device(1, Some("s-data"));
        let seen = seen(std::slice::from_ref(&disk), vec![device], vec![("data", probe)]);
        let plan = one(&disk, &seen, &journal(vec![]));
        let refusal = &plan.refusals[0];
        assert_eq!(refusal.kind, RefusalKind::ForeignData);
        assert!(refusal.message.contains(said), "{refusal:?}");
        assert_eq!(refusal.remedy.contains("wipefs"), wiped, "{refusal:?}");
        assert_eq!(
            refusal.remedy.contains("serial s-data"),
            kind != "ext3",
            "{refusal:?}"
        );
    }
}

#[test]
fn partitioned_disks_are_refused() {
    let disk = wanted("data");
    let device = Device {
        uses: ["vdb1", "vdb2"].map(|name| Use::Partition(name.into())).into(),
        ..device(1, Some("s-data"))
    };
    let seen = seen(
        std::slice::from_ref(&disk),
        vec![device],
        vec![("data", data("gpt", None))],
    );
    let plan = one(&disk, &seen, &journal(vec![]));
    let said = &plan.refusals[0];
    assert_eq!(said.kind, RefusalKind::ForeignData);
    assert!(
        said.message.contains("vdb1, vdb2") && said.message.contains("root disk"),
        "{said:?}"
    );
}
