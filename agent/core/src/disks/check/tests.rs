use virtfleet_wire::settings::{DiskEncryption, DiskMatch, Luks2Settings};

use super::*;

mod binds;
mod order;

fn disk(name: &str) -> DiskSettings {
    DiskSettings {
        matching: DiskMatch {
            serial: Some(format!("s-{name}")),
            ..DiskMatch::default()
        },
        mount_point: Some(format!("/mnt/{name}")),
        ..DiskSettings::named(name)
    }
}

/// Keys that have a problem, below the first disk.
fn bad(disk: DiskSettings) -> Vec<String> {
    let (wanted, problems) = check(std::slice::from_ref(&disk));
    assert_eq!(wanted.is_empty(), !problems.is_empty());
    let start = format!("disks[{}]", disk.name);
    let key = |problem: WantedProblem| {
        assert!(problem.message.len() > 5 && problem.disk == disk.name);
        let key = problem.path.strip_prefix(&start).unwrap_or(&problem.path);
        key.trim_start_matches('.').to_owned()
    };
    problems.into_iter().map(key).collect()
}

const GOOD: [&str; 0] = [];

#[test]
fn names_are_validated() {
    for (name, good) in [
        ("data", true),
        ("data-1", true),
        ("0", true),
        (&"a".repeat(40), true),
        (&"a".repeat(41), false),
        ("", false),
        ("-a", false),
        ("Data", false),
        ("a.b", false),
        ("a/b", false),
        ("a b", false),
        ("d\u{e4}", false),
    ] {
        let disk = DiskSettings {
            name: name.to_owned(),
            mount_point: None,
            ..disk("x")
        };
        let (_, problems) = check(&[disk]);
        assert_eq!(problems.is_empty(), good, "{name}: {problems:?}");
    }
    let (_, problems) = check(&[disk("a b"), disk("")]);
    let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths[0], "disks[\"a b\"].name");
    assert!(paths.contains(&"disks[1].name"), "{paths:?}");
}

#[test]
fn duplicate_names_are_refused() {
    let (wanted, problems) = check(&[
        disk("a"),
        DiskSettings {
            mount_point: Some("/mnt/b".into()),
            ..disk("a")
        },
        disk("c"),
    ]);
    assert_eq!(problems.len(), 2);
    assert_eq!(wanted.len(), 1);
}

/// A disk like [`disk`] with these JSON settings.
fn with(settings: &str) -> DiskSettings {
    let mut value = serde_json::to_value(disk("data")).unwrap();
    let settings: serde_json::Value = serde_json::from_str(settings).unwrap();
    for (key, setting) in settings.as_object().unwrap() {
        value[key] = setting.clone();
    }
    serde_json::from_value(value).unwrap()
}

#[test]
fn match_needs_an_identity_or_allow_positional() {
    for (matching, keys) in [
        (r#"{"serial": "a"}"#, &GOOD[..]),
        (r#"{"serial": "0123456789-0123456789-0123456789"}"#, &GOOD),
        (r#"{"volume": "a"}"#, &GOOD),
        (r#"{"path": "pci-*"}"#, &GOOD),
        (r#"{"serial": "a", "size": "1Gi"}"#, &GOOD),
        (r#"{"size": "1Gi", "order": 1, "allowPositional": true}"#, &GOOD),
        (r#"{"size": "1Gi", "allowPositional": true}"#, &GOOD),
        (
            r#"{"path": "pci-*", "size": "1Gi", "order": 2, "allowPositional": true}"#,
            &GOOD,
        ),
        ("{}", &["match"]),
        (r#"{"allowPositional": true}"#, &["match"]),
        (r#"{"size": "1Gi"}"#, &["match"]),
        (r#"{"size": "1Gi", "order": 1}"#, &["match"]),
        (r#"{"serial": "a", "size": "1Gi", "order": 1}"#, &["match"]),
        (r#"{"order": 1, "allowPositional": true}"#, &["match.order"]),
        (
            r#"{"size": "1Gi", "order": 0, "allowPositional": true}"#,
            &["match.order"],
        ),
        (r#"{"partUuid": "0FC63DAF-8483-4772-8E79-3D69D8477DE4"}"#, &GOOD),
        (
            r#"{"partUuid": "fb705cfa-02", "serial": "a", "size": "1Gi"}"#,
            &GOOD,
        ),
        (r#"{"partLabel": "blank part", "path": "pci-*"}"#, &GOOD),
        (r#"{"partUuid": "fb705cfa"}"#, &["match.partUuid"]),
        (r#"{"partLabel": " a"}"#, &["match.partLabel"]),
        (
            r#"{"partLabel": "a", "size": "1Gi", "order": 1, "allowPositional": true}"#,
            &["match.order"],
        ),
        (r#"{"serial": ""}"#, &["match.serial"]),
        (r#"{"serial": "a "}"#, &["match.serial"]),
        (r#"{"volume": " a"}"#, &["match.volume"]),
        (r#"{"path": "/dev/disk/by-path/x"}"#, &["match.path"]),
        (r#"{"serial": "a", "size": "much"}"#, &["match.size"]),
        (r#"{"serial": "a", "size": "0"}"#, &["match.size"]),
    ] {
        assert_eq!(
            bad(with(&format!(r#"{{"match": {matching}}}"#))),
            keys,
            "{matching}"
        );
    }
    let sized = r#"{"match": {"serial": "a", "size": "100Gi"}, "grow": GROW}"#;
    assert_eq!(bad(with(&sized.replace("GROW", "true"))), ["match.size"]);
    // A disk that is matched by its UUID may grow.
    let positional = r#"{"match": {"size": "1Gi", "order": 1, "allowPositional": true}, "grow": true}"#;
    assert_eq!(bad(with(positional)), [""; 0]);
    assert_eq!(
        check(&[with(&sized.replace("GROW", "false"))]).0[0].size,
        Some(100 << 30)
    );
}

#[test]
fn system_and_journal_paths_are_refused() {
    for (path, good) in [
        ("/data", true),
        ("/var/lib/containerd", true),
        ("/var/log", true),
        ("/srv/lib", true),
        ("/library", true),
        ("/usr/local", true),
        ("/home", true),
        ("/etcetera", true),
        ("/mnt/a_b.c-d:e@f+g=h", true),
        ("/", false),
        ("", false),
        ("data", false),
        ("/data/", false),
        ("//data", false),
        ("/a//b", false),
        ("/a/./b", false),
        ("/a/../etc", false),
        ("/a b", false),
        ("/a%b", false),
        ("/a\u{e4}", false),
        ("/etc", false),
        ("/etc/kubernetes", false),
        ("/usr", false),
        ("/usr/bin", false),
        ("/usr/lib/modules", false),
        ("/bin", false),
        ("/sbin", false),
        ("/lib", false),
        ("/lib64", false),
        ("/lib/modules", false),
        ("/boot", false),
        ("/boot/efi", false),
        ("/proc", false),
        ("/sys/fs", false),
        ("/dev/shm", false),
        ("/run", false),
        ("/run/virtfleet", false),
        ("/var", false),
        ("/var/lib", false),
        ("/var/run/x", false),
        ("/var/lib/virtfleet", false),
        ("/var/lib/virtfleet/journal", false),
    ] {
        let keys = bad(DiskSettings {
            mount_point: Some(path.into()),
            ..disk("data")
        });
        assert_eq!(keys, if good { &[][..] } else { &["mountPoint"] }, "{path}");
    }
}

#[test]
fn invalid_combinations_are_reported() {
    for (settings, keys) in [
        (r#"{"filesystem": "swap", "mountPoint": null}"#, &GOOD[..]),
        (r#"{"filesystem": "swap"}"#, &["mountPoint"]),
        (r#"{"content": "image-clone"}"#, &GOOD),
        (r#"{"content": "blank", "shared": true}"#, &GOOD),
        (r#"{"content": "image-clone", "shared": true}"#, &["content"]),
        (
            r#"{"content": "image-clone", "match": {"partLabel": "blank"}}"#,
            &["content"],
        ),
        (
            r#"{"content": "image-clone", "match": {"partUuid": "fb705cfa-02", "path": "pci-*"}}"#,
            &["content"],
        ),
        (r#"{"content": "image-clone", "ephemeral": true}"#, &["content"]),
        (
            r#"{"filesystem": "swap", "mountPoint": null, "owner": {}}"#,
            &["owner"],
        ),
        (
            r#"{"filesystem": "swap", "mountPoint": null, "seedFrom": "existing"}"#,
            &["seedFrom"],
        ),
        (
            r#"{"filesystem": "swap", "mountPoint": null, "grow": true}"#,
            &["grow"],
        ),
        (
            r#"{"filesystem": "swap", "mountPoint": null, "shared": true}"#,
            &["shared"],
        ),
        (r#"{"mountPoint": null}"#, &GOOD),
        (r#"{"mountPoint": null, "owner": {}}"#, &["owner"]),
        (r#"{"mountPoint": null, "seedFrom": "existing"}"#, &["seedFrom"]),
        (r#"{"mountPoint": null, "options": ["noatime"]}"#, &["options"]),
        (r#"{"shared": true}"#, &GOOD),
        (r#"{"shared": true, "ephemeral": true}"#, &["shared"]),
        (
            r#"{"shared": true, "encryption": {"luks2": {"key": "/etc/k"}}}"#,
            &["shared"],
        ),
        (r#"{"reservedPercent": 50}"#, &GOOD),
        (r#"{"reservedPercent": 51}"#, &["reservedPercent"]),
        (
            r#"{"reservedPercent": 0, "filesystem": "xfs"}"#,
            &["reservedPercent"],
        ),
        (r#"{"mkfsOptions": ["-F"]}"#, &["mkfsOptions"]),
    ] {
        assert_eq!(bad(with(settings)), keys, "{settings}");
    }
}

#[test]
fn proof_settings_are_validated() {
    for (settings, key) in [
        (r#"{"proofSeconds": 1}"#, None),
        (r#"{"proof": "timed", "proofSeconds": 180}"#, None),
        (r#"{"proofSeconds": 0}"#, Some("proofSeconds")),
        (r#"{"proofSeconds": 181}"#, Some("proofSeconds")),
        (r#"{"proof": "full", "proofSeconds": 20}"#, Some("proofSeconds")),
        (
            r#"{"proof": "sampled", "proofSeconds": 20}"#,
            Some("proofSeconds"),
        ),
        (r#"{"approveAbove": "500G", "new": true}"#, None),
        (r#"{"approveAbove": "0"}"#, None),
        (r#"{"approveAbove": "much"}"#, Some("approveAbove")),
        (r#"{"approveAbove": ""}"#, Some("approveAbove")),
    ] {
        assert_eq!(
            bad(with(settings)),
            key.into_iter().collect::<Vec<_>>(),
            "{settings}"
        );
    }
    let above = |settings| check(&[with(settings)]).0[0].approve_above;
    assert_eq!(above("{}"), 1 << 40);
    assert_eq!(above(r#"{"approveAbove": "2Ti"}"#), 2 << 40);
}

#[test]
fn labels_are_validated_per_filesystem() {
    use DiskFilesystem::{Btrfs, Ext4, Swap, Xfs};
    for (filesystem, label, good) in [
        (Ext4, "a".repeat(16), true),
        (Ext4, "a".repeat(17), false),
        (Xfs, "a".repeat(12), true),
        (Xfs, "a".repeat(13), false),
        (Btrfs, "a".repeat(255), true),
        (Btrfs, "a".repeat(256), false),
        (Swap, "a".repeat(17), false),
        (Ext4, String::new(), false),
        (Ext4, "-a".into(), false),
        (Ext4, "a b".into(), false),
        (Ext4, "a/b".into(), false),
    ] {
        let mount_point = (filesystem != Swap).then(|| "/x".to_owned());
        let keys = bad(DiskSettings {
            filesystem,
            mount_point,
            label: Some(label.clone()),
            ..disk("data")
        });
        assert_eq!(
            keys,
            if good { &[][..] } else { &["label"] },
            "{filesystem:?} {label}"
        );
    }
}

#[test]
fn unsafe_mount_options_are_refused() {
    for (option, good) in [
        ("noatime", true),
        ("data=ordered", true),
        ("discard", true),
        ("ro", true),
        ("commit=30", true),
        ("", false),
        ("a,b", false),
        ("a b", false),
        ("a\"b", false),
        ("x-systemd.makefs", false),
        ("X-mount.mkdir", false),
        ("loop", false),
        ("offset=4096", false),
        ("remount", false),
        ("bind", false),
        ("uuid=1", false),
        ("device=/dev/vdc", false),
        ("logdev=/dev/vdc", false),
        ("subvol=x", false),
        ("nofail", false),
        ("noauto", false),
        ("user", false),
        ("nouuid", false),
        ("noload", false),
        ("barrier=0", false),
        ("barrier=1", true),
        ("nobarrier", false),
    ] {
        let keys = bad(DiskSettings {
            options: vec![option.into()],
            ..disk("data")
        });
        assert_eq!(keys, if good { &[][..] } else { &["options"] }, "{option}");
    }
    for (option, good) in [
        ("discard", true),
        ("discard=once", true),
        ("discard=pages", true),
        ("discard=all", false),
        ("pri=10", true),
        ("pri=32768", false),
        ("pri=-1", false),
        ("pri", false),
        ("noatime", false),
    ] {
        let swap = DiskSettings {
            filesystem: DiskFilesystem::Swap,
            mount_point: None,
            ..disk("data")
        };
        let keys = bad(DiskSettings {
            options: vec![option.into()],
            ..swap
        });
        assert_eq!(keys, if good { &[][..] } else { &["options"] }, "{option}");
    }
}

#[test]
fn owners_are_validated() {
    for (user, mode, keys) in [
        ("root", "0711", &GOOD[..]),
        ("1000", "7777", &GOOD),
        ("", "0711", &["owner.user"]),
        ("a b", "0711", &["owner.user"]),
        ("root", "0888", &["owner.mode"]),
        ("root", "10000", &["owner.mode"]),
        ("root", "", &["owner.mode"]),
        ("root", "+711", &["owner.mode"]),
        ("root", "rwx", &["owner.mode"]),
    ] {
        let owner = DiskOwner {
            user: Some(user.into()),
            group: None,
            mode: Some(mode.into()),
        };
        assert_eq!(
            bad(DiskSettings {
                owner: Some(owner),
                ..disk("data")
            }),
            keys,
            "{user} {mode}"
        );
    }
    let owner = DiskOwner {
        user: None,
        group: None,
        mode: Some("0711".into()),
    };
    let (wanted, _) = check(&[DiskSettings {
        owner: Some(owner),
        ..disk("data")
    }]);
    assert_eq!(wanted[0].owner.as_ref().unwrap().mode, Some(0o711));
}

#[test]
fn encryption_keys_are_validated() {
    const KEY: &str = "encryption.luks2.key";
    const RECOVERY: &str = "encryption.luks2.recoveryKey";
    for (key, recovery, keys) in [
        ("/etc/k", None, &GOOD[..]),
        ("/etc/k", Some("/etc/r"), &GOOD),
        ("tpm2", Some("/etc/r"), &GOOD),
        ("tpm2", None, &[RECOVERY]),
        ("", None, &[KEY]),
        ("k", None, &[KEY]),
        ("/etc/../k", None, &[KEY]),
        ("/etc/k", Some("r"), &[RECOVERY]),
        ("/etc/k", Some("/etc/k"), &[RECOVERY]),
        ("/mnt/data/k", None, &[KEY]),
        ("/mnt/database/k", None, &GOOD),
        ("/etc/k", Some("/mnt/data/r"), &[RECOVERY]),
    ] {
        let luks2 = Luks2Settings {
            key: key.into(),
            recovery_key: recovery.map(str::to_owned),
        };
        let disk = DiskSettings {
            encryption: Some(DiskEncryption { luks2 }),
            ..disk("data")
        };
        assert_eq!(bad(disk), keys, "{key} {recovery:?}");
    }
    let luks2 = Luks2Settings {
        key: "/mnt/other/k".into(),
        recovery_key: None,
    };
    let disks = [
        disk("other"),
        DiskSettings {
            encryption: Some(DiskEncryption { luks2 }),
            ..disk("data")
        },
    ];
    let (wanted, problems) = check(&disks);
    assert_eq!((wanted.len(), problems.len()), (1, 1));
}
