//! Disks with a LUKS2 container.

use super::*;
use crate::disks::{
    device::{DevNumber, Device, Use},
    journal::{Entry, Progress},
    probe::{Content, Left, Probe},
    seen::Mapping,
    wanted::{Encryption, Key, KeySource},
};

const MAKE: [&str; 4] = ["encrypt", "open", "format-mapped", "mount"];
const REMAKE: [&str; 5] = ["clear-unfinished", "encrypt", "open", "format-mapped", "mount"];
const FILL: [&str; 3] = ["open", "format-mapped", "mount"];
const OPEN: [&str; 2] = ["open", "mount"];
const NONE: [&str; 0] = [];

fn disk() -> Wanted {
    encrypted("data")
}

fn vdb() -> Device {
    device(1, Some("s-data"))
}

fn at(progress: Progress) -> Entry {
    Entry {
        luks_uuid: Some(luks_uuid("data")),
        ..entry("data", &vdb(), progress)
    }
}

fn header(uuid: &str, complete: Option<bool>) -> Probe {
    Probe::HasData(Content {
        complete,
        ..content("crypto_LUKS", Some(uuid))
    })
}

fn closed(probe: Probe, entries: Vec<Entry>) -> DiskPlan {
    let disk = disk();
    let seen = seen(std::slice::from_ref(&disk), vec![vdb()], vec![("data", probe)]);
    one(&disk, &seen, &journal(entries))
}

/// Open container with the content `inner`.
fn opened_seen(outer: Probe, header: &str, inner: Probe) -> Seen {
    let disk = disk();
    let device = Device {
        uses: vec![Use::Holder("dm-0".into())],
        ..vdb()
    };
    let mut seen = seen(std::slice::from_ref(&disk), vec![device], vec![("data", outer)]);
    let mapping = Mapping {
        number: DevNumber { major: 254, minor: 0 },
        luks_uuid: header.into(),
        size: GIB - (16 << 20),
        could_be: GIB - (16 << 20),
        probe: inner,
    };
    seen.mappings.insert("virtfleet-data".into(), mapping);
    seen
}

fn opened(inner: Probe, entries: Vec<Entry>) -> DiskPlan {
    let uuid = luks_uuid("data");
    one(
        &disk(),
        &opened_seen(header(&uuid, None), &uuid, inner),
        &journal(entries),
    )
}

#[test]
fn closed_container_is_created_opened_or_refused() {
    use Progress::{Encrypted, Formatted, Intended, Used};
    use RefusalKind::{BlankAgain, ForeignData, NoKey, Unfinished, UnknownData, Unreadable};
    let ours = luks_uuid("data");
    for (probe, entries, steps, refused) in [
        (blank(), vec![], &MAKE[..], None),
        (blank(), vec![at(Intended)], &MAKE[..], None),
        (blank(), vec![at(Encrypted)], &NONE[..], Some(BlankAgain)),
        (blank(), vec![at(Used)], &NONE[..], Some(BlankAgain)),
        (header(&ours, None), vec![], &OPEN[..], None),
        (header(FOREIGN, None), vec![], &["open"][..], None),
        (header(&ours, Some(true)), vec![at(Intended)], &FILL[..], None),
        // A problem with a key never leads to a format.
        (
            header(&ours, Some(false)),
            vec![at(Intended)],
            &NONE[..],
            Some(NoKey),
        ),
        (
            header(&ours, None),
            vec![at(Intended)],
            &NONE[..],
            Some(Unfinished),
        ),
        (header(&ours, None), vec![at(Encrypted)], &FILL[..], None),
        (header(&ours, None), vec![at(Formatted)], &OPEN[..], None),
        (header(&ours, None), vec![at(Used)], &OPEN[..], None),
        (header(FOREIGN, None), vec![at(Used)], &["open"][..], None),
        (header(FOREIGN, None), vec![at(Encrypted)], &["open"][..], None),
        (
            data("ext4", Some(&fs_uuid("data"))),
            vec![],
            &NONE[..],
            Some(ForeignData),
        ),
        (data("", None), vec![], &NONE[..], Some(UnknownData)),
        (data("", None), vec![at(Intended)], &NONE[..], Some(Unfinished)),
        (
            plain::bytes(Some(Left::Tool)),
            vec![at(Intended)],
            &REMAKE[..],
            None,
        ),
        (data("", None), vec![at(Encrypted)], &NONE[..], Some(UnknownData)),
        (unknown(), vec![at(Intended)], &NONE[..], Some(Unreadable)),
    ] {
        let plan = closed(probe.clone(), entries.clone());
        assert_eq!(
            (&words(&plan)[..], refusal(&plan)),
            (steps, refused),
            "{probe:?} {entries:?}"
        );
    }
}

#[test]
fn open_container_is_formatted_only_if_recorded_as_new() {
    use Progress::{Encrypted, Formatted, Intended, Seeded, Used};
    use RefusalKind::{ForeignData, Unfinished, UnknownData, Unreadable};
    let ours = fs_uuid("data");
    let inner = |complete| {
        Probe::HasData(Content {
            complete,
            left: Some(Left::Tool),
            ..content("ext4", Some(&ours))
        })
    };
    let bytes = plain::bytes;
    let used = Left::User { trace: "x".into() };
    for (probe, entries, steps, refused) in [
        (
            bytes(Some(Left::Tool)),
            vec![at(Encrypted)],
            &["format-mapped", "mount"][..],
            None,
        ),
        // Written to a new container manually.
        (
            bytes(Some(Left::Foreign { at: 9 })),
            vec![at(Encrypted)],
            &[][..],
            Some(UnknownData),
        ),
        (data("", None), vec![at(Encrypted)], &[][..], Some(UnknownData)),
        (
            Probe::HasData(Content {
                complete: Some(false),
                left: Some(used.clone()),
                ..content("ext4", Some(&ours))
            }),
            vec![at(Encrypted)],
            &[][..],
            Some(Unfinished),
        ),
        (
            Probe::HasData(Content {
                complete: Some(true),
                left: Some(used),
                ..content("ext4", Some(&ours))
            }),
            vec![at(Encrypted)],
            &["mount"][..],
            None,
        ),
        (
            blank(),
            vec![at(Encrypted)],
            &["format-mapped", "mount"][..],
            None,
        ),
        (
            bytes(Some(Left::Tool)),
            vec![at(Intended)],
            &["format-mapped", "mount"][..],
            None,
        ),
        (
            inner(Some(false)),
            vec![at(Encrypted)],
            &["format-mapped", "mount"][..],
            None,
        ),
        (inner(Some(true)), vec![at(Encrypted)], &["mount"][..], None),
        (inner(None), vec![at(Encrypted)], &NONE[..], Some(Unfinished)),
        (
            data("ext4", Some(FOREIGN)),
            vec![at(Encrypted)],
            &NONE[..],
            Some(ForeignData),
        ),
        (
            data("xfs", Some(&ours)),
            vec![at(Encrypted)],
            &NONE[..],
            Some(ForeignData),
        ),
        (unknown(), vec![at(Encrypted)], &NONE[..], Some(Unreadable)),
        (data("", None), vec![], &NONE[..], Some(UnknownData)),
        (blank(), vec![], &NONE[..], Some(UnknownData)),
        (blank(), vec![at(Formatted)], &NONE[..], Some(UnknownData)),
        (data("", None), vec![at(Seeded)], &NONE[..], Some(UnknownData)),
        (data("", None), vec![at(Used)], &NONE[..], Some(UnknownData)),
        (data("ext4", Some(FOREIGN)), vec![], &["mount"][..], None),
        (data("ext4", None), vec![], &NONE[..], Some(ForeignData)),
        (inner(None), vec![at(Used)], &["mount"][..], None),
    ] {
        let plan = opened(probe.clone(), entries.clone());
        assert_eq!(
            (&words(&plan)[..], refusal(&plan)),
            (steps, refused),
            "{probe:?} {entries:?}"
        );
        assert!(plan.refusals.iter().all(|refusal| refusal.evidence.is_empty()));
    }
}

#[test]
fn mapping_of_another_disk_is_refused() {
    let ours = luks_uuid("data");
    for (outer, mapped, refused) in [
        (header(&ours, None), ours.as_str(), None),
        (unknown(), ours.as_str(), None),
        (header(FOREIGN, None), FOREIGN, None),
        (unknown(), FOREIGN, Some(RefusalKind::InUse)),
        (header(&ours, None), FOREIGN, Some(RefusalKind::InUse)),
        (blank(), ours.as_str(), Some(RefusalKind::InUse)),
    ] {
        let seen = opened_seen(outer.clone(), mapped, data("ext4", Some(&fs_uuid("data"))));
        let plan = one(&disk(), &seen, &journal(vec![]));
        assert_eq!(refusal(&plan), refused, "{outer:?} {mapped}");
    }
}

#[test]
fn positional_container_is_opened_only_with_assigned_uuid() {
    let disk = Wanted {
        serial: None,
        size: Some(GIB),
        order: Some(1),
        ..disk()
    };
    let device = device(1, None);
    for (uuid, refused) in [
        (luks_uuid("data"), None),
        (FOREIGN.to_owned(), Some(RefusalKind::ForeignData)),
    ] {
        let mut seen = seen(
            std::slice::from_ref(&disk),
            vec![device.clone()],
            vec![("data", header(&uuid, None))],
        );
        assert_eq!(refusal(&one(&disk, &seen, &journal(vec![]))), refused);
        seen.mappings = opened_seen(blank(), &uuid, data("ext4", Some(&fs_uuid("data")))).mappings;
        let plan = one(&disk, &seen, &journal(vec![]));
        assert_eq!(refusal(&plan), refused);
        assert_eq!(plan.key, Some(Key::Position { size: GIB, order: 1 }));
    }
}

#[test]
fn unusable_key_never_leads_to_format() {
    let with = |key: KeySource, bad: &'static str| {
        let disk = Wanted {
            encryption: Some(Encryption {
                key,
                recovery: Some("/etc/keys/r".into()),
            }),
            ..disk()
        };
        move |probe: Probe| {
            let mut seen = seen(std::slice::from_ref(&disk), vec![vdb()], vec![("data", probe)]);
            seen.bad_keys.insert(bad.to_owned(), "no such file".into());
            let plan = one(&disk, &seen, &journal(vec![]));
            assert!(refusal(&plan).is_none() || plan.steps.is_empty());
            refusal(&plan)
        }
    };
    let file = || KeySource::File("/etc/keys/k".into());
    let ours = header(&luks_uuid("data"), None);
    for (key, bad, to_make, to_open) in [
        // The available recovery key opens it.
        (file(), "/etc/keys/k", true, false),
        (file(), "/etc/keys/r", true, false),
        (KeySource::Tpm2, "tpm2", true, false),
        (KeySource::Tpm2, "/etc/keys/r", true, false),
        (file(), "/etc/keys/other", false, false),
    ] {
        let refusal = with(key.clone(), bad);
        assert_eq!(
            refusal(blank()) == Some(RefusalKind::NoKey),
            to_make,
            "{key:?} {bad}"
        );
        assert_eq!(
            refusal(ours.clone()) == Some(RefusalKind::NoKey),
            to_open,
            "{key:?} {bad}"
        );
    }
}

#[test]
fn unusable_key_is_refused_with_remedy() {
    for (key, bad) in [
        (KeySource::File("/etc/keys/k".into()), "/etc/keys/k"),
        (KeySource::Tpm2, "tpm2"),
    ] {
        let disk = Wanted {
            encryption: Some(Encryption {
                key,
                recovery: Some("/etc/keys/r".into()),
            }),
            ..disk()
        };
        let probe = header(&luks_uuid("data"), None);
        let mut seen = seen(std::slice::from_ref(&disk), vec![vdb()], vec![("data", probe)]);
        for path in [bad, "/etc/keys/r"] {
            seen.bad_keys.insert(path.to_owned(), "no such file".into());
        }
        let plan = one(&disk, &seen, &journal(vec![at(Progress::Used)]));
        assert_eq!((refusal(&plan), plan.steps.len()), (Some(RefusalKind::NoKey), 0));
        let said = &plan.refusals[0];
        assert!(
            said.message.contains(bad) && said.message.contains("never formats a disk"),
            "{said:?}"
        );
        assert!(said.remedy.contains("cryptsetup open"), "{said:?}");
    }
}

#[test]
fn luks_tools_are_required() {
    let disk = Wanted {
        encryption: Some(Encryption {
            key: KeySource::Tpm2,
            recovery: Some("/r".into()),
        }),
        ..disk()
    };
    for (tool, probe, refused) in [
        ("cryptsetup", blank(), true),
        ("cryptsetup", header(&luks_uuid("data"), None), true),
        ("systemd-cryptenroll", blank(), true),
        ("systemd-cryptenroll", header(&luks_uuid("data"), None), false),
        ("mkfs.ext4", blank(), true),
    ] {
        let mut seen = seen(std::slice::from_ref(&disk), vec![vdb()], vec![("data", probe)]);
        seen.missing_tools.insert(tool.into());
        let plan = one(&disk, &seen, &journal(vec![]));
        assert_eq!(refusal(&plan) == Some(RefusalKind::NoTool), refused, "{tool}");
    }
}

#[test]
fn other_holders_count_as_use() {
    let disk = disk();
    let device = Device {
        uses: vec![Use::Holder("dm-0".into())],
        ..vdb()
    };
    let seen = seen(
        std::slice::from_ref(&disk),
        vec![device],
        vec![("data", header(FOREIGN, None))],
    );
    assert_eq!(
        refusal(&one(&disk, &seen, &journal(vec![]))),
        Some(RefusalKind::InUse)
    );
    let ours = luks_uuid("data");
    let mut seen = opened_seen(header(&ours, None), &ours, data("ext4", Some(FOREIGN)));
    seen.devices[0].uses.push(Use::Holder("dm-1".into()));
    assert_eq!(
        refusal(&one(&disk, &seen, &journal(vec![]))),
        Some(RefusalKind::InUse)
    );
}
