//! Disks declared with `content: image-clone`.

use virtfleet_wire::settings::DiskContent;

use super::super::super::{
    clone::{CheckedPartition, CloneProof, CloneState, Deviation, FirstBoot},
    device::Use,
    fixtures::*,
    journal::{Evidence, Journal, Progress},
    plan::{DiskStep, Plan, RefusalKind, plan},
    probe::Doubt,
    seen::Seen,
    wanted::Wanted,
    writes::WriteMark,
};

fn proof() -> CloneProof {
    CloneProof {
        root: "vda".into(),
        image_bytes: 1 << 29,
        disk_guid: "g".into(),
        partitions: vec![CheckedPartition {
            number: 1,
            start: 1 << 20,
            length: 1 << 28,
            because: "every byte is as on the root disk".into(),
        }],
        first_boot: FirstBoot {
            at: 7,
            source: "/etc/ssh/ssh_host_rsa_key".into(),
        },
        digest: "d".into(),
        behind_read: 5,
        behind: 9,
        largest_unread: 4,
        writes: WriteMark::default(),
    }
}

fn declared() -> Wanted {
    Wanted {
        content: DiskContent::ImageClone,
        ..wanted("a")
    }
}

fn found(wanted: &Wanted, state: CloneState) -> Seen {
    let mut disk = device(1, Some("s-a"));
    disk.uses.push(Use::Partition("vdb1".into()));
    let mut seen = seen(
        std::slice::from_ref(wanted),
        vec![disk],
        vec![("a", data("gpt", None))],
    );
    seen.clones.insert("a".into(), state);
    seen
}

fn planned(wanted: &Wanted, seen: &Seen, journal: &Journal) -> Plan {
    plan(std::slice::from_ref(wanted), &[], seen, journal)
}

fn words(plan: &Plan) -> Vec<&'static str> {
    plan.disks[0].steps.iter().map(DiskStep::word).collect()
}

#[test]
fn untouched_clone_is_erased_then_formatted() {
    for (state, again) in [
        (CloneState::Untouched(proof()), false),
        (
            CloneState::Interrupted {
                proof: proof(),
                left: 4096,
            },
            true,
        ),
    ] {
        let plan = planned(&declared(), &found(&declared(), state), &Journal::default());
        assert_eq!(words(&plan)[..2], ["erase-clone", "format"], "{plan:?}");
        let DiskStep::EraseClone(intent) = &plan.disks[0].steps[0] else {
            panic!("{plan:?}")
        };
        assert_eq!((intent.resume, &intent.proof), (again, &proof()));
        assert!(plan.disks[0].steps[0].destroys());
        // Formatting depends on the proof of blankness after the erasure only.
        let DiskStep::Format(intent) = &plan.disks[0].steps[1] else {
            panic!("{plan:?}")
        };
        assert!(matches!(intent.evidence, Evidence::ErasedClone { .. }));
        let notes = plan.disks[0].notes.join("\n");
        for word in ["partition 1", "of 9 bytes behind the image 5", "ssh_host_rsa_key"] {
            assert!(notes.contains(word), "{notes}");
        }
    }
}

#[test]
fn only_untouched_clones_are_erased() {
    let refused = |wanted: &Wanted, seen: &Seen, journal: &Journal| {
        let plan = planned(wanted, seen, journal);
        assert!(plan.disks[0].steps.is_empty(), "{plan:?}");
        let refusal = plan.disks[0].refusals[0].clone();
        assert_eq!(refusal.evidence, "", "cannot be approved: {refusal:?}");
        refusal
    };
    let none = Journal::default();
    let untouched = || CloneState::Untouched(proof());
    // Without `content: image-clone`.
    let seen = found(&wanted("a"), untouched());
    assert_eq!(refused(&wanted("a"), &seen, &none).kind, RefusalKind::ForeignData);
    let deviations = (0..5)
        .map(|number| Deviation {
            place: format!("partition {number}"),
            field: "GUID".into(),
            here: "a".into(),
            root: "b".into(),
            why: "the image has the root disk's".into(),
        })
        .collect();
    let refusal = refused(
        &declared(),
        &found(&declared(), CloneState::Refused { deviations }),
        &none,
    );
    assert_eq!(refusal.kind, RefusalKind::NotAClone);
    assert_eq!(refusal.facts.len(), 5);
    assert!(refusal.message.contains("and 2 more"), "{}", refusal.message);
    let doubt = Doubt {
        reason: "read error".into(),
        passing: false,
    };
    let refusal = refused(
        &declared(),
        &found(&declared(), CloneState::Unknown(doubt)),
        &none,
    );
    assert_eq!(refusal.kind, RefusalKind::Unreadable);
    for used in [
        Use::Mounted("/boot/efi".into()),
        Use::Swap,
        Use::Holder("dm-0".into()),
        Use::Attached("loop1".into()),
        Use::Opened("dd (7)".into()),
    ] {
        let mut seen = found(&declared(), untouched());
        seen.devices[0].uses.push(used);
        assert_eq!(refused(&declared(), &seen, &none).kind, RefusalKind::InUse);
    }
    // The filesystem made on it is lost; a clone in its place does not permit formatting. An intent
    // alone is not sufficient.
    for progress in [Progress::Formatted, Progress::Seeded, Progress::Used] {
        let journal = journal(vec![entry("a", &device(1, Some("s-a")), progress)]);
        let refusal = refused(&declared(), &found(&declared(), untouched()), &journal);
        assert_eq!(refusal.kind, RefusalKind::NotAClone);
        assert!(refusal.message.contains("was replaced"), "{}", refusal.message);
    }
    let journal = journal(vec![entry("a", &device(1, Some("s-a")), Progress::Intended)]);
    let plan = planned(&declared(), &found(&declared(), untouched()), &journal);
    assert_eq!(words(&plan)[0], "erase-clone");
}

#[test]
fn large_partly_read_clone_needs_new_or_full_proof() {
    let large = Wanted {
        approve_above: 1 << 20,
        ..declared()
    };
    let untouched = |proof| CloneState::Untouched(proof);
    let none = Journal::default();
    let plan = planned(&large, &found(&large, untouched(proof())), &none);
    assert!(plan.disks[0].steps.is_empty(), "{plan:?}");
    let refusal = &plan.disks[0].refusals[0];
    assert_eq!(refusal.kind, RefusalKind::NotAClone);
    assert_eq!(refusal.evidence, "", "cannot be approved: {refusal:?}");
    assert!(
        refusal.message.contains("of 9 bytes behind the image 5"),
        "{}",
        refusal.message
    );
    let whole = CloneProof {
        behind_read: 9,
        largest_unread: 0,
        ..proof()
    };
    let vouched = Wanted {
        new: true,
        ..large.clone()
    };
    for (wanted, proof) in [(&large, whole), (&vouched, proof())] {
        let plan = planned(wanted, &found(wanted, untouched(proof)), &none);
        assert_eq!(words(&plan)[0], "erase-clone", "{plan:?}");
    }
}

#[test]
fn progress_of_timed_proof_does_not_change_the_plan() {
    let none = Journal::default();
    let with = |behind_read, largest_unread| {
        let proof = CloneProof {
            behind_read,
            largest_unread,
            ..proof()
        };
        planned(
            &declared(),
            &found(&declared(), CloneState::Untouched(proof)),
            &none,
        )
    };
    assert!(with(5, 4).agrees_with(&with(7, 2)));
    assert!(!with(5, 4).agrees_with(&with(9, 0)));
}

#[test]
fn encrypted_clone_is_erased_before_luks_format() {
    let wanted = Wanted {
        content: DiskContent::ImageClone,
        ..encrypted("a")
    };
    let plan = planned(
        &wanted,
        &found(&wanted, CloneState::Untouched(proof())),
        &Journal::default(),
    );
    assert_eq!(words(&plan)[..2], ["erase-clone", "encrypt"], "{plan:?}");
}
