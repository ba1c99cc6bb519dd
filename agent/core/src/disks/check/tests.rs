use virtfleet_wire::settings::{DiskEncryption, DiskMatch, Luks2Settings};

use super::*;

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

/// The keys that have a problem, below the first disk.
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
fn a_name_is_short_and_plain() {
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
fn a_name_is_given_once() {
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

#[test]
fn a_disk_is_named_by_what_it_is_or_by_consent_by_where() {
    let text = |text: &str| Some(text.to_owned());
    let size = || text("100Gi");
    for (matching, keys) in [
        (
            DiskMatch {
                serial: text("a"),
                ..DiskMatch::default()
            },
            &GOOD[..],
        ),
        (
            DiskMatch {
                serial: text(&"a".repeat(36)),
                ..DiskMatch::default()
            },
            &GOOD,
        ),
        (
            DiskMatch {
                volume: text("a"),
                ..DiskMatch::default()
            },
            &GOOD,
        ),
        (
            DiskMatch {
                path: text("pci-*"),
                ..DiskMatch::default()
            },
            &GOOD,
        ),
        (
            DiskMatch {
                serial: text("a"),
                size: size(),
                ..DiskMatch::default()
            },
            &GOOD,
        ),
        (
            DiskMatch {
                size: size(),
                order: Some(1),
                allow_positional: true,
                ..DiskMatch::default()
            },
            &GOOD,
        ),
        (
            DiskMatch {
                size: size(),
                allow_positional: true,
                ..DiskMatch::default()
            },
            &GOOD,
        ),
        (
            DiskMatch {
                path: text("pci-*"),
                size: size(),
                order: Some(2),
                allow_positional: true,
                ..DiskMatch::default()
            },
            &GOOD,
        ),
        (DiskMatch::default(), &["match"]),
        (
            DiskMatch {
                allow_positional: true,
                ..DiskMatch::default()
            },
            &["match"],
        ),
        (
            DiskMatch {
                size: size(),
                ..DiskMatch::default()
            },
            &["match"],
        ),
        (
            DiskMatch {
                size: size(),
                order: Some(1),
                ..DiskMatch::default()
            },
            &["match"],
        ),
        (
            DiskMatch {
                serial: text("a"),
                size: size(),
                order: Some(1),
                ..DiskMatch::default()
            },
            &["match"],
        ),
        (
            DiskMatch {
                order: Some(1),
                allow_positional: true,
                ..DiskMatch::default()
            },
            &["match.order"],
        ),
        (
            DiskMatch {
                size: size(),
                order: Some(0),
                allow_positional: true,
                ..DiskMatch::default()
            },
            &["match.order"],
        ),
        (
            DiskMatch {
                serial: text(""),
                ..DiskMatch::default()
            },
            &["match.serial"],
        ),
        (
            DiskMatch {
                serial: text("a "),
                ..DiskMatch::default()
            },
            &["match.serial"],
        ),
        (
            DiskMatch {
                volume: text(" a"),
                ..DiskMatch::default()
            },
            &["match.volume"],
        ),
        (
            DiskMatch {
                path: text("/dev/disk/by-path/x"),
                ..DiskMatch::default()
            },
            &["match.path"],
        ),
        (
            DiskMatch {
                serial: text("a"),
                size: text("much"),
                ..DiskMatch::default()
            },
            &["match.size"],
        ),
        (
            DiskMatch {
                serial: text("a"),
                size: text("0"),
                ..DiskMatch::default()
            },
            &["match.size"],
        ),
    ] {
        assert_eq!(
            bad(DiskSettings {
                matching: matching.clone(),
                ..disk("data")
            }),
            keys,
            "{matching:?}"
        );
    }
    let grows = DiskSettings {
        matching: DiskMatch {
            serial: text("a"),
            size: size(),
            ..DiskMatch::default()
        },
        grow: true,
        ..disk("data")
    };
    assert_eq!(bad(grows.clone()), ["match.size"]);
    assert_eq!(
        check(&[DiskSettings { grow: false, ..grows }]).0[0].size,
        Some(100 << 30)
    );
}

#[test]
fn no_disk_is_mounted_over_the_system_or_the_journal() {
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
fn what_does_not_go_together_is_named() {
    let swap = || DiskSettings {
        filesystem: DiskFilesystem::Swap,
        mount_point: None,
        ..disk("data")
    };
    let owner = || Some(DiskOwner::default());
    let luks = || {
        Some(DiskEncryption {
            luks2: Luks2Settings {
                key: "/etc/k".into(),
                recovery_key: None,
            },
        })
    };
    for (disk, keys) in [
        (swap(), &GOOD[..]),
        (
            DiskSettings {
                mount_point: Some("/x".into()),
                ..swap()
            },
            &["mountPoint"],
        ),
        (
            DiskSettings {
                owner: owner(),
                ..swap()
            },
            &["owner"],
        ),
        (
            DiskSettings {
                seed_from: SeedFrom::Existing,
                ..swap()
            },
            &["seedFrom"],
        ),
        (DiskSettings { grow: true, ..swap() }, &["grow"]),
        (
            DiskSettings {
                shared: true,
                ..swap()
            },
            &["shared"],
        ),
        (
            DiskSettings {
                mount_point: None,
                ..disk("data")
            },
            &GOOD,
        ),
        (
            DiskSettings {
                mount_point: None,
                owner: owner(),
                ..disk("data")
            },
            &["owner"],
        ),
        (
            DiskSettings {
                mount_point: None,
                seed_from: SeedFrom::Existing,
                ..disk("data")
            },
            &["seedFrom"],
        ),
        (
            DiskSettings {
                mount_point: None,
                options: vec!["noatime".into()],
                ..disk("data")
            },
            &["options"],
        ),
        (
            DiskSettings {
                shared: true,
                ..disk("data")
            },
            &GOOD,
        ),
        (
            DiskSettings {
                shared: true,
                ephemeral: true,
                ..disk("data")
            },
            &["shared"],
        ),
        (
            DiskSettings {
                shared: true,
                encryption: luks(),
                ..disk("data")
            },
            &["shared"],
        ),
        (
            DiskSettings {
                reserved_percent: Some(50),
                ..disk("data")
            },
            &GOOD,
        ),
        (
            DiskSettings {
                reserved_percent: Some(51),
                ..disk("data")
            },
            &["reservedPercent"],
        ),
        (
            DiskSettings {
                reserved_percent: Some(0),
                filesystem: DiskFilesystem::Xfs,
                ..disk("data")
            },
            &["reservedPercent"],
        ),
        (
            DiskSettings {
                mkfs_options: vec!["-F".into()],
                ..disk("data")
            },
            &["mkfsOptions"],
        ),
    ] {
        assert_eq!(bad(disk.clone()), keys, "{disk:?}");
    }
}

#[test]
fn a_label_fits_its_filesystem() {
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
fn options_that_break_what_holds_are_refused() {
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
fn an_owner_is_names_and_an_octal_mode() {
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
fn keys_are_files_of_the_root_disk_and_a_tpm_needs_a_second() {
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

fn at(name: &str, path: &str) -> DiskSettings {
    DiskSettings {
        mount_point: Some(path.into()),
        ..disk(name)
    }
}

fn names(settings: &[DiskSettings]) -> Vec<String> {
    check(settings).0.into_iter().map(|disk| disk.name).collect()
}

#[test]
fn disks_below_others_come_after_them() {
    let settings = [
        at("c", "/d/x/y"),
        at("b", "/d/x"),
        at("n", "/data"),
        at("a", "/d"),
        at("z", "/e"),
    ];
    assert_eq!(names(&settings), ["n", "a", "z", "b", "c"]);
    let swap = DiskSettings {
        filesystem: DiskFilesystem::Swap,
        mount_point: None,
        ..disk("s")
    };
    assert_eq!(names(&[swap, at("b", "/x")]), ["s", "b"]);
}

#[test]
fn one_mount_point_is_for_one_disk() {
    let (wanted, problems) = check(&[at("a", "/x"), at("b", "/x"), at("c", "/y")]);
    assert_eq!((wanted.len(), problems.len()), (1, 2));
}

#[test]
fn what_is_below_a_refused_disk_is_refused_too() {
    let broken = DiskSettings {
        required: true,
        reserved_percent: Some(99),
        ..at("a", "/x")
    };
    let (wanted, problems) = check(&[at("c", "/x/y/z"), at("b", "/x/y"), broken, at("d", "/xy")]);
    assert_eq!(
        wanted.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(),
        ["d"]
    );
    let mut refused: Vec<_> = problems
        .iter()
        .map(|problem| (problem.disk.as_str(), problem.required))
        .collect();
    refused.sort_unstable();
    assert_eq!(refused, [("a", true), ("b", false), ("c", false)]);
}
