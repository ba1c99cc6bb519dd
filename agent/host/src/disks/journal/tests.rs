use std::os::unix::fs::PermissionsExt as _;

use virtfleet_agent_core::disks::{
    Blankness, DevNumber, DeviceId, Key,
    journal::{Evidence, Progress},
    known::KnownDisk,
};
use virtfleet_wire::settings::ProofKind;

use super::*;

fn roots() -> (tempfile::TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots {
        rootfs: dir.path().to_owned(),
        ..Roots::default()
    };
    (dir, roots)
}

fn device() -> DeviceId {
    DeviceId {
        name: "vdb".into(),
        number: DevNumber {
            major: 252,
            minor: 16,
        },
        diskseq: Some(7),
        size: 1 << 30,
        serial: Some("data1".into()),
        partition: None,
    }
}

fn entry(name: &str, progress: Progress) -> Entry {
    Entry {
        format: FORMAT,
        name: name.into(),
        key: Key::Serial("data1".into()),
        progress,
        device: device(),
        boot_id: "boot".into(),
        filesystem: "ext4".into(),
        uuid: "u".into(),
        luks_uuid: None,
        evidence: Evidence::Blank(Blankness {
            proof: ProofKind::Sampled,
            regions: 3,
            bytes: 4096,
            ..Blankness::default()
        }),
        at_ns: 1,
        arguments: Vec::new(),
        others_wrote: false,
        binds: Vec::new(),
    }
}

fn line(step: &str) -> AuditRecord {
    AuditRecord {
        at_ns: 1,
        boot_id: "boot".into(),
        name: "data".into(),
        moment: "about-to".into(),
        step: step.into(),
        device: device(),
        evidence: None,
        content: None,
        uuid: None,
        tool: "x".repeat(2000),
        error: None,
    }
}

#[test]
fn written_records_are_read_back_and_only_root_can_access_them() {
    let (_dir, roots) = roots();
    assert!(JournalStore::existing(&roots).unwrap().is_none());
    let store = JournalStore::open(&roots).unwrap();
    assert_eq!(store.load().unwrap(), Journal::default());
    let approval = Approval {
        name: "data".into(),
        hash: "h".into(),
        at_ns: 2,
        facts: Vec::new(),
    };
    for progress in [Progress::Intended, Progress::Used] {
        store.write_entry(&entry("data", progress)).unwrap();
        store.write_approvals(std::slice::from_ref(&approval)).unwrap();
        let journal = JournalStore::open(&roots).unwrap().load().unwrap();
        assert_eq!(journal.entries, [entry("data", progress)]);
        assert_eq!(journal.approvals, std::slice::from_ref(&approval));
    }
    let at = roots.root(JOURNAL_DIRECTORY);
    assert_eq!(fs::metadata(&at).unwrap().mode() & 0o777, 0o700);
    for file in fs::read_dir(&at).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().mode() & 0o777, 0o600);
    }
    store.remove_entry("data").unwrap();
    assert_eq!(store.load().unwrap().entries, []);
}

#[test]
fn untrusted_files_are_reported_and_not_used() {
    let (_dir, roots) = roots();
    let store = JournalStore::open(&roots).unwrap();
    let at = roots.root(JOURNAL_DIRECTORY);
    for name in ["newer", "loose", "link", "other", "good"] {
        store.write_entry(&entry(name, Progress::Used)).unwrap();
    }
    let newer = fs::read_to_string(at.join("newer.json")).unwrap();
    fs::write(
        at.join("newer.json"),
        newer.replace("\"format\":1", "\"format\":2"),
    )
    .unwrap();
    fs::write(at.join("torn.json"), "{\"format\":1,").unwrap();
    fs::set_permissions(at.join("torn.json"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(at.join("loose.json"), fs::Permissions::from_mode(0o666)).unwrap();
    fs::rename(at.join("link.json"), at.join("LINKED")).unwrap();
    std::os::unix::fs::symlink("LINKED", at.join("link.json")).unwrap();
    fs::rename(at.join("other.json"), at.join("another.json")).unwrap();
    let journal = store.load().unwrap();
    assert_eq!(journal.entries, [entry("good", Progress::Used)]);
    let broken: Vec<&str> = journal.broken.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(broken, ["another", "link", "loose", "newer", "torn"]);
    assert!(
        journal.broken[3].1.contains("format 2"),
        "{}",
        journal.broken[3].1
    );
}

#[test]
fn a_list_of_known_disks_that_cannot_be_read_is_not_an_absent_one() {
    let (_dir, roots) = roots();
    let store = JournalStore::open(&roots).unwrap();
    assert_eq!(store.load().unwrap().known_disks, None);
    let known = KnownDisks {
        vm_uuid: "vm".into(),
        boot_id: "boot".into(),
        open: true,
        disks: vec![KnownDisk {
            address: "0000:01:00.0/virtio".into(),
            size: 1 << 30,
            boot_id: "boot".into(),
            ..KnownDisk::default()
        }],
        ..KnownDisks::default()
    };
    store.write_known(&known).unwrap();
    let journal = store.load().unwrap();
    assert_eq!((journal.known_disks, journal.broken), (Some(known), Vec::new()));
    let file = roots.root(JOURNAL_DIRECTORY).join(KNOWN_FILE);
    let text = fs::read_to_string(&file).unwrap();
    for (text, mode) in [
        (&text[..text.len() / 2], 0o600),
        ("", 0o600),
        ("{}", 0o600),
        ("null", 0o600),
        (&text, 0o666),
    ] {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let journal = store.load().unwrap();
        assert_eq!(journal.known_disks, None, "{text}");
        let broken: Vec<&str> = journal.broken.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(broken, [KNOWN_FILE], "{text}");
    }
}

#[test]
fn a_link_or_a_directory_that_others_can_write_is_rejected() {
    let (dir, roots) = roots();
    JournalStore::open(&roots).unwrap();
    let at = roots.root(JOURNAL_DIRECTORY);
    fs::set_permissions(&at, fs::Permissions::from_mode(0o770)).unwrap();
    assert!(matches!(
        JournalStore::open(&roots).unwrap_err(),
        JournalError::Loose(_)
    ));
    fs::set_permissions(&at, fs::Permissions::from_mode(0o700)).unwrap();
    fs::rename(&at, dir.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), &at).unwrap();
    assert!(matches!(
        JournalStore::open(&roots).unwrap_err(),
        JournalError::Io { .. }
    ));
}

#[test]
fn the_audit_record_is_bounded_and_survives_a_truncated_line() {
    let (_dir, roots) = roots();
    let store = JournalStore::open(&roots).unwrap();
    let at = roots.root(JOURNAL_DIRECTORY).join(AUDIT_FILE);
    store.audit(&line("one")).unwrap();
    let mut torn = fs::read(&at).unwrap();
    torn.extend_from_slice(b"{\"atNs\":5");
    fs::write(&at, &torn).unwrap();
    store.audit(&line("two")).unwrap();
    let steps = |most| {
        let records = store.last_audit(most);
        records.into_iter().map(|record| record.step).collect::<Vec<_>>()
    };
    assert_eq!(steps(9), ["one", "two"]);
    let long = "y".repeat(usize::try_from(MAX_AUDIT_BYTES).unwrap()) + "\n";
    fs::write(&at, [&torn, long.as_bytes()].concat()).unwrap();
    store.audit(&line("three")).unwrap();
    assert!(fs::metadata(&at).unwrap().len() < 10_000, "the file was rotated");
    assert_eq!(steps(9), ["one", "three"]);
    assert_eq!(steps(1), ["three"]);
}

#[test]
fn the_journal_may_be_on_a_persistent_mount_of_var_that_is_no_declared_disk() {
    let (_dir, mut roots) = roots();
    roots.procfs = roots.rootfs.join("proc");
    fs::create_dir_all(roots.procfs.join("1")).unwrap();
    let root = roots.rootfs.display().to_string();
    let held = |lines: &[(&str, &str)]| {
        let lines: Vec<String> = lines
            .iter()
            .enumerate()
            .map(|(n, (place, kind))| format!("{n} 1 0:{n} / {root}{place} rw - {kind} /dev/none rw\n"))
            .collect();
        let text = lines.concat();
        fs::write(roots.procfs.join("1/mountinfo"), text).unwrap();
        holder(&roots)
    };
    for (lines, place) in [
        (&[("", "btrfs"), ("/var", "btrfs")][..], Some("/var")),
        (
            &[
                ("", "btrfs"),
                ("/var", "btrfs"),
                ("/var/lib", "xfs"),
                ("/srv", "ext4"),
            ],
            Some("/var/lib"),
        ),
        // A nested subvolume.
        (&[("", "btrfs"), ("/home", "btrfs")], Some("/")),
        (&[("", "ext4"), ("/home", "btrfs")], None),
        (&[("", "ext4"), ("/var", "tmpfs")], None),
        (&[("", "ext4"), ("/var", "ext4"), ("/var", "tmpfs")], None),
        (&[("", "ext4"), ("/var", "ramfs")], None),
        (
            &[("", "ext4"), ("/var", "ext4"), ("/var/lib/virtfleet", "ext4")],
            None,
        ),
        (&[("", "ext4"), ("/var/lib/virtfleet/journal", "ext4")], None),
        (&[], None),
    ] {
        assert_eq!(held(lines).as_deref(), place, "{lines:?}");
    }
    let store = || JournalStore::open(&roots).unwrap();
    assert!(store().off(&["/var", "/srv"]).is_ok());
    assert!(matches!(store().off(&["/"]), Err(JournalError::Elsewhere(_))));
}
