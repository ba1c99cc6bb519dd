//! The agent's own filesystem, in use, although blkid reports something else.

use super::{
    plain::{NONE, TAKE, at, disk, planned, vdb},
    *,
};
use crate::disks::{
    device::{Device, Use},
    journal::{Entry, Progress},
    probe::{Content, Left, Probe},
    seen::Mapping,
};

/// The filesystem of the entry, and what is not proven to be the data of its files.
fn own(kind: &str, also: &[&str]) -> Probe {
    Probe::HasData(Content {
        ours: true,
        also: also.iter().map(|also| (*also).to_owned()).collect(),
        inside: vec!["iso9660 at byte 32769".to_owned()],
        ..content(kind, Some(&fs_uuid("data")))
    })
}

#[test]
fn own_filesystem_is_mounted_with_a_note() {
    for progress in [Progress::Formatted, Progress::Seeded, Progress::Used] {
        let plan = planned(&disk(), own("ext4", &[]), at(progress));
        assert_eq!(
            (&words(&plan)[..], refusal(&plan)),
            (&TAKE[..], None),
            "{progress:?}"
        );
        assert!(
            plan.notes
                .iter()
                .any(|note| note.contains("iso9660 at byte 32769")),
            "{:?}",
            plan.notes
        );
    }
}

#[test]
fn other_content_is_refused_without_advice_to_erase() {
    let xfs = Entry {
        filesystem: "xfs".into(),
        ..at(Progress::Used).remove(0)
    };
    for (probe, entry, said) in [
        (
            own("ext4", &["dos at byte 510"]),
            at(Progress::Used).remove(0),
            "holds the agent's own ext4 and dos at byte 510",
        ),
        // Another filesystem is declared now.
        (
            own("xfs", &[]),
            xfs.clone(),
            "holds the agent's own xfs, but ext4 is declared",
        ),
        (
            data("xfs", Some(&fs_uuid("data"))),
            xfs.clone(),
            "holds the agent's own xfs, but ext4 is declared",
        ),
        // What the names of the kinds suggest does not matter.
        (
            own("xfs", &["iso9660"]),
            xfs,
            "holds the agent's own xfs and iso9660, but ext4 is declared",
        ),
    ] {
        let plan = planned(&disk(), probe.clone(), vec![entry]);
        assert_eq!(
            (&words(&plan)[..], refusal(&plan)),
            (&NONE[..], Some(RefusalKind::ForeignData)),
            "{probe:?}"
        );
        let refused = &plan.refusals[0];
        assert!(refused.message.contains(said), "{refused:?}");
        assert!(refused.evidence.is_empty(), "it cannot be approved: {refused:?}");
        assert!(
            refused.remedy.starts_with("erase nothing") && !refused.remedy.contains("wipefs"),
            "{refused:?}"
        );
    }
}

#[test]
fn unused_uuid_is_no_own_filesystem() {
    // Without a journal, and with the intent alone, the advice is as for any other content.
    for entries in [vec![], at(Progress::Intended)] {
        let probe = Probe::HasData(Content {
            also: vec!["dos".into()],
            left: Some(Left::Tool),
            ..content("ext4", Some(&fs_uuid("data")))
        });
        let plan = planned(&disk(), probe, entries);
        assert_eq!(refusal(&plan), Some(RefusalKind::ForeignData));
        assert!(plan.refusals[0].remedy.contains("wipefs"));
    }
}

#[test]
fn partitions_on_an_own_filesystem_are_refused_without_advice_to_erase() {
    let disk = disk();
    let device = Device {
        uses: vec![Use::Partition("vdb1".into())],
        ..vdb()
    };
    let seen = seen(
        std::slice::from_ref(&disk),
        vec![device],
        vec![("data", own("ext4", &["dos at byte 510"]))],
    );
    let plan = one(&disk, &seen, &journal(at(Progress::Used)));
    let refused = &plan.refusals[0];
    assert_eq!(refused.kind, RefusalKind::ForeignData);
    assert!(
        refused
            .message
            .contains("vdb1; it also holds the agent's own ext4"),
        "{refused:?}"
    );
    assert!(!refused.remedy.contains("wipefs"), "{refused:?}");
}

#[test]
fn own_container_and_its_filesystem_are_never_erased() {
    let entry = Entry {
        luks_uuid: Some(luks_uuid("data")),
        ..at(Progress::Used).remove(0)
    };
    // The settings lack `encryption` now.
    let plan = planned(
        &disk(),
        data("crypto_LUKS", Some(&luks_uuid("data"))),
        vec![entry.clone()],
    );
    assert_eq!(refusal(&plan), Some(RefusalKind::ForeignData));
    assert!(!plan.refusals[0].remedy.contains("wipefs"), "{plan:?}");

    let disk = encrypted("data");
    for (inner, steps, refused) in [
        (own("ext4", &[]), &TAKE[..], None),
        (
            own("ext4", &["dos at byte 510"]),
            &NONE[..],
            Some(RefusalKind::ForeignData),
        ),
    ] {
        let mut seen = seen(
            std::slice::from_ref(&disk),
            vec![vdb()],
            vec![("data", data("crypto_LUKS", Some(&luks_uuid("data"))))],
        );
        let mapping = Mapping {
            number: crate::disks::DevNumber { major: 254, minor: 0 },
            luks_uuid: luks_uuid("data"),
            size: GIB - (16 << 20),
            could_be: GIB - (16 << 20),
            probe: inner.clone(),
        };
        seen.mappings.insert("virtfleet-data".to_owned(), mapping);
        let plan = one(&disk, &seen, &journal(vec![entry.clone()]));
        assert_eq!((&words(&plan)[..], refusal(&plan)), (steps, refused), "{inner:?}");
        for refused in &plan.refusals {
            assert!(!refused.remedy.contains("wipefs"), "{refused:?}");
            // Byte 510 of the disk is in the header of the container.
            assert_eq!(
                refused.message,
                "/dev/mapper/virtfleet-data, the LUKS container on /dev/vdb, holds the agent's own ext4 and dos at byte 510"
            );
            assert!(
                refused
                    .remedy
                    .contains("-o ro,noload /dev/mapper/virtfleet-data DIRECTORY"),
                "{refused:?}"
            );
        }
    }
}

#[test]
fn filesystem_of_another_entry_is_not_taken_by_position() {
    let disk = positional("data", 1);
    let other = Entry {
        name: "other".into(),
        uuid: FOREIGN.into(),
        ..at(Progress::Used).remove(0)
    };
    let probe = Probe::HasData(Content {
        ours: true,
        ..content("ext4", Some(FOREIGN))
    });
    let seen = seen(
        std::slice::from_ref(&disk),
        vec![device(1, None)],
        vec![("data", probe)],
    );
    let plan = one(&disk, &seen, &journal(vec![other]));
    assert_eq!(refusal(&plan), Some(RefusalKind::ForeignData), "{plan:?}");
    let said = &plan.refusals[0];
    assert!(
        said.message.contains("holds the agent's own ext4, but ext4 with")
            && said.message.contains("matched only by size and order"),
        "{said:?}"
    );
    assert!(said.remedy.starts_with("erase nothing"), "{said:?}");
}

/// A mount with `ro` alone would write to the disk.
#[test]
fn advice_to_mount_by_hand_does_not_replay_a_log() {
    for (kind, options) in [
        ("ext4", Some("ro,noload")),
        ("xfs", Some("ro,norecovery")),
        ("btrfs", Some("ro,rescue=nologreplay")),
        ("swap", None),
    ] {
        let entry = Entry {
            filesystem: kind.into(),
            ..at(Progress::Used).remove(0)
        };
        let plan = planned(&disk(), own(kind, &["dos at byte 510"]), vec![entry]);
        let remedy = &plan.refusals[0].remedy;
        match options {
            Some(options) => {
                let mount = format!("`mount -t {kind} -o {options} /dev/vdb DIRECTORY`");
                assert!(remedy.contains(&mount), "{remedy}");
            }
            None => assert!(!remedy.contains("mount -t"), "{remedy}"),
        }
    }
}
