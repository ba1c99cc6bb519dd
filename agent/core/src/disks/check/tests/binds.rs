//! One disk for several places.

use virtfleet_wire::settings::DiskPlace;

use super::*;

fn with_places(places: &[(&str, Option<&str>)]) -> DiskSettings {
    let places = places.iter().map(|(path, directory)| DiskPlace {
        path: (*path).to_owned(),
        directory: directory.map(str::to_owned),
        ..DiskPlace::default()
    });
    DiskSettings {
        mount_point: None,
        places: places.collect(),
        ..disk("node")
    }
}

#[test]
fn places_are_validated() {
    let node = with_places(&[
        ("/var/lib/containerd", Some("containerd")),
        ("/var/lib/kubelet", None),
        ("/var/log", None),
    ]);
    assert_eq!(bad(node.clone()), GOOD);
    let (wanted, _) = check(&[node]);
    let found: Vec<_> = wanted[0]
        .binds
        .iter()
        .map(|bind| (bind.path.as_str(), bind.directory.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("/var/lib/containerd", "containerd"),
            ("/var/lib/kubelet", "var-lib-kubelet"),
            ("/var/log", "var-log")
        ]
    );
    assert_eq!(
        wanted[0].mount_point.as_deref(),
        Some("/var/lib/virtfleet-disks/node")
    );
    assert_eq!(wanted[0].owner.as_ref().unwrap().mode, Some(0o700));
    for (places, key) in [
        (&[("var/x", None)][..], "places[0].path"),
        (&[("", None)], "places[0].path"),
        (&[("/srv/../etc", None)], "places[0].path"),
        (&[("/srv/", None)], "places[0].path"),
        (&[("/", None)], "places[0].path"),
        (&[("/etc/x", None)], "places[0].path"),
        (&[("/usr", None)], "places[0].path"),
        (&[("/var/lib", None)], "places[0].path"),
        (&[("/var/lib/virtfleet-disks/node/x", None)], "places[0].path"),
        (&[("/srv/a", None), ("/srv/a", Some("b"))], "places[1].path"),
        (&[("/srv/a", None), ("/srv/a/b", None)], "places[1].path"),
        (&[("/srv/a/b", None), ("/srv/a", None)], "places[1].path"),
        (
            &[("/srv/a", Some("x")), ("/srv/b", Some("x"))],
            "places[1].directory",
        ),
        (&[("/srv/a-b", None), ("/srv/a/b", None)], "places[1].directory"),
        (&[("/srv/a", Some(""))], "places[0].directory"),
        (&[("/srv/a", Some("a/b"))], "places[0].directory"),
        (&[("/srv/a", Some(".."))], "places[0].directory"),
        (&[("/srv/a", Some(".virtfleet-filling-x"))], "places[0].directory"),
        (&[("/srv/a", Some("lost+found"))], "places[0].directory"),
        (&[("/lost+found", None)], "places[0].directory"),
    ] {
        assert_eq!(bad(with_places(places)), [key], "{places:?}");
    }
    let many: Vec<String> = (0..17).map(|n| format!("/srv/{n}")).collect();
    let many: Vec<(&str, Option<&str>)> = many.iter().map(|path| (path.as_str(), None)).collect();
    assert_eq!(bad(with_places(&many[..16])), GOOD);
    assert_eq!(bad(with_places(&many)), ["places"]);
    let mut hidden = with_places(&[("/.data", None)]);
    assert_eq!(
        check(std::slice::from_ref(&hidden)).0[0].binds[0].directory,
        "_.data"
    );
    hidden.places[0].owner = Some(DiskOwner {
        user: Some("a b".into()),
        mode: Some("9".into()),
        ..DiskOwner::default()
    });
    assert_eq!(bad(hidden), ["places[0].owner.user", "places[0].owner.mode"]);
}

#[test]
fn places_exclude_mount_point_swap_and_owner() {
    let node = with_places(&[("/srv/a", None)]);
    for (disk, keys) in [
        (
            DiskSettings {
                mount_point: Some("/srv/b".into()),
                ..node.clone()
            },
            vec!["mountPoint"],
        ),
        (
            DiskSettings {
                filesystem: DiskFilesystem::Swap,
                ..node.clone()
            },
            vec!["places"],
        ),
        (
            DiskSettings {
                owner: Some(DiskOwner::default()),
                ..node.clone()
            },
            vec!["owner"],
        ),
        (
            DiskSettings {
                options: vec!["noatime".into()],
                seed_from: SeedFrom::Existing,
                grow: true,
                ..node.clone()
            },
            vec![],
        ),
    ] {
        assert_eq!(bad(disk), keys);
    }
}

#[test]
fn places_must_not_overlap_with_other_disks() {
    let node = with_places(&[("/srv/a", None), ("/srv/b/c", None)]);
    for (at, key) in [
        ("/srv/a", Some("disks[node].places[0].path")),
        ("/srv/a/below", Some("disks[node].places[0].path")),
        ("/srv/b", Some("disks[node].places[1].path")),
        ("/srv/bc", None),
    ] {
        let other = DiskSettings {
            mount_point: Some(at.into()),
            ..disk("other")
        };
        for settings in [[node.clone(), other.clone()], [other, node.clone()]] {
            let (wanted, problems) = check(&settings);
            let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
            assert_eq!(
                paths.contains(&key.unwrap_or_default()),
                key.is_some(),
                "{at}: {paths:?}"
            );
            // A disk below a refused place is refused, too: it would be mounted on the root disk.
            let below = at.starts_with("/srv/a/");
            assert_eq!(
                paths.contains(&"disks[other].mountPoint"),
                below,
                "{at}: {paths:?}"
            );
            assert_eq!(wanted.len(), 2 - paths.len(), "{at}: {paths:?}");
        }
    }
    let twice = [
        node.clone(),
        DiskSettings {
            name: "two".into(),
            ..node
        },
    ];
    let (wanted, problems) = check(&twice);
    assert!(wanted.is_empty() && problems.len() == 4, "{problems:?}");
    // A key file on a place does not exist yet when it is needed.
    let locked = DiskSettings {
        encryption: Some(DiskEncryption {
            luks2: Luks2Settings {
                key: "/srv/a/key".into(),
                recovery_key: None,
            },
        }),
        ..disk("locked")
    };
    let (_, problems) = check(&[with_places(&[("/srv/a", None)]), locked]);
    assert_eq!(problems[0].path, "disks[locked].encryption.luks2.key");
}
