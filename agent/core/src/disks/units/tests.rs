use super::*;
use crate::disks::fixtures::{FOREIGN, encrypted, shared, swap, wanted};

fn placing<'a>(wanted: &'a Wanted, mapping: Option<&'a str>) -> Placing<'a> {
    Placing {
        wanted,
        uuid: FOREIGN,
        mapping,
    }
}

fn text(files: &[(String, String)], end: &str) -> String {
    let found = files.iter().find(|(path, _)| path.ends_with(end));
    found.unwrap_or_else(|| panic!("no {end} in {files:?}")).1.clone()
}

/// Results of `systemd-escape --path` of systemd 252.
#[test]
fn paths_are_escaped_as_systemd_does() {
    for (path, unit) in [
        ("/var/lib/containerd", "var-lib-containerd"),
        ("/mnt/a-b/c_d.e", "mnt-a\\x2db-c_d.e"),
        ("/.hidden/x", "\\x2ehidden-x"),
        ("/", "-"),
        ("//mnt///x/", "mnt-x"),
        ("/mnt/\u{e4} b", "mnt-\\xc3\\xa4\\x20b"),
        ("/a:b@c+d", "a:b\\x40c\\x2bd"),
        (
            "/dev/disk/by-uuid/11111111-2222-4333-8444-555555555555",
            "dev-disk-by\\x2duuid-11111111\\x2d2222\\x2d4333\\x2d8444\\x2d555555555555",
        ),
    ] {
        assert_eq!(escape_path(path), unit, "{path}");
    }
}

#[test]
fn mount_unit_mounts_by_uuid_before_containers() {
    let mut disk = wanted("data");
    disk.options = vec!["noatime".into(), "x=50%".into()];
    let files = placing(&disk, None).files();
    let device = "dev-disk-by\\x2duuid-11111111\\x2d2222\\x2d4333\\x2d8444\\x2d555555555555";
    assert_eq!(
        text(&files, "/mnt-data.mount"),
        format!(
            "# Written by virtfleet-agent for the disk \"data\" of its settings, and again when it is changed.\n\
             [Unit]\n\
             X-Virtfleet-Disk=data\n\
             Description=Secondary disk data (virtfleet)\n\
             DefaultDependencies=no\n\
             Conflicts=umount.target\n\
             Before=umount.target containerd.service docker.service crio.service kubelet.service\n\
             After=local-fs-pre.target\n\
             Requires=systemd-fsck@{device}.service\n\
             After=systemd-fsck@{device}.service\n\n\
             [Mount]\n\
             What=/dev/disk/by-uuid/{FOREIGN}\n\
             Where=/mnt/data\n\
             Type=ext4\n\
             Options=noatime,x=50%%\n"
        )
    );
    let timeout = text(&files, &format!("/{device}.device.d/50-virtfleet.conf"));
    assert!(
        timeout.ends_with("X-Virtfleet-Disk=data\nJobRunningTimeoutSec=30s\n"),
        "{timeout}"
    );
    let wants = text(&files, "/multi-user.target.d/50-virtfleet-disk-data.conf");
    assert!(
        wants.ends_with("X-Virtfleet-Disk=data\nWants=mnt-data.mount\n"),
        "{wants}"
    );
    assert!(
        files
            .iter()
            .all(|(path, text)| path.starts_with(DIRECTORY) && disk_of(text) == Some("data"))
    );
}

#[test]
fn only_ext4_is_checked_before_it_is_mounted() {
    for (filesystem, checked) in [
        (DiskFilesystem::Ext4, true),
        (DiskFilesystem::Xfs, false),
        (DiskFilesystem::Btrfs, false),
    ] {
        let disk = Wanted {
            filesystem,
            ..wanted("data")
        };
        assert_eq!(
            text(&placing(&disk, None).files(), ".mount").contains("systemd-fsck@"),
            checked
        );
    }
}

#[test]
fn container_is_mounted_by_its_mapping() {
    let disk = encrypted("data");
    let files = placing(&disk, Some("virtfleet-data")).files();
    let unit = text(&files, "/mnt-data.mount");
    assert!(unit.contains("What=/dev/mapper/virtfleet-data\n"), "{unit}");
    assert!(
        unit.contains("systemd-fsck@dev-mapper-virtfleet\\x2ddata.service"),
        "{unit}"
    );
    text(
        &files,
        "/dev-mapper-virtfleet\\x2ddata.device.d/50-virtfleet.conf",
    );
}

#[test]
fn swap_has_a_unit() {
    let mut disk = swap("data");
    disk.options = vec!["discard".into(), "pri=10".into()];
    let placing = placing(&disk, None);
    assert!(placing.unit().ends_with("555555555555.swap"));
    let unit = text(&placing.files(), ".swap");
    assert!(
        unit.ends_with(&format!(
            "[Swap]\nWhat=/dev/disk/by-uuid/{FOREIGN}\nOptions=discard,pri=10\n"
        )),
        "{unit}"
    );
}

#[test]
fn fstab_line_is_added_once_and_replaced() {
    let mut disk = wanted("data");
    let root = "UUID=1 / ext4 defaults 0 1\n";
    let added = placing(&disk, None).fstab(root, &[]);
    assert_eq!(
        added,
        format!(
            "{root}# virtfleet disk data\n\
             UUID={FOREIGN} /mnt/data ext4 nofail,x-systemd.device-timeout=30s 0 2\n"
        )
    );
    assert_eq!(placing(&disk, None).fstab(&added, &[]), added);
    let other = wanted("data2");
    let both = placing(&other, None).fstab(&added, &[]);
    assert_eq!(both.lines().count(), 5);
    disk.options = vec!["noatime".into()];
    let changed = placing(&disk, None).fstab(&both, &[]);
    assert_eq!(changed, both.replacen(" nofail", " noatime,nofail", 1));
    let disk = swap("s");
    assert_eq!(
        placing(&disk, None).fstab("", &[]),
        format!("# virtfleet disk s\nUUID={FOREIGN} none swap nofail,x-systemd.device-timeout=30s 0 0\n")
    );
    let disk = encrypted("e");
    assert!(
        placing(&disk, Some("virtfleet-e"))
            .fstab("x", &[])
            .starts_with("x\n# virtfleet disk e\n/dev/mapper/virtfleet-e /mnt/e ")
    );
}

#[test]
fn start_gate_orders_services_unless_disabled_on_the_command_line() {
    let files = gate_files("");
    assert_eq!(files.len(), 5);
    assert!(
        files
            .iter()
            .all(|(_, text)| is_gates(text) && disk_of(text).is_none())
    );
    let gate = text(&files, "/virtfleet-disks.service");
    assert!(
        gate.contains("ConditionKernelCommandLine=!virtfleet.disks=optional\nConditionKernelCommandLine=!virtfleet.provision=off\n"),
        "{gate}"
    );
    let kubelet = text(&files, "/kubelet.service.d/50-virtfleet-disks.conf");
    assert!(
        kubelet.ends_with("Requires=virtfleet-disks.service\nAfter=virtfleet-disks.service\n"),
        "{kubelet}"
    );
}

#[test]
fn markers_are_parsed() {
    assert_eq!(disk_of("[Unit]\nX-Virtfleet-Disk=a-b\n"), Some("a-b"));
    assert_eq!(disk_of("[Unit]\n# X-Virtfleet-Disk=a\n"), None);
    assert!(!is_gates("[Unit]\nX-Virtfleet-Disk=a\n"));
}

#[test]
fn places_are_read_only_from_own_files() {
    let unit = |mark: &str| format!("[Unit]\n{mark}\n[Mount]\nWhere=/var\n");
    assert_eq!(places_of(&unit("X-Virtfleet-Disk=data")), ["/var"]);
    assert!(places_of(&unit("Description=x")).is_empty());
    let fstab = "UUID=1 / ext4 defaults 0 1\n# virtfleet disk data\nUUID=2 /srv ext4 nofail 0 2\nUUID=3 /var ext4 defaults 0 2\n";
    assert_eq!(places_of(fstab), ["/srv"]);
}

#[test]
fn container_unit_is_started_by_the_agent_and_others_wait() {
    let disk = encrypted("data");
    let files = placing(&disk, Some("virtfleet-data")).files();
    assert_eq!(files.len(), 2, "no boot starts it before it is open: {files:?}");
    assert!(files.iter().all(|(path, _)| !path.contains("multi-user.target")));
    let limit = text(&files, "dev-mapper-virtfleet\\x2ddata.device.d/50-virtfleet.conf");
    assert!(limit.ends_with("JobRunningTimeoutSec=6min\n"), "{limit}");
    let unit = include_str!("../../../../../packaging/systemd/virtfleet-provision.service");
    assert!(
        unit.contains("TimeoutStartSec=5min"),
        "the timeout must be longer than this"
    );
}

#[test]
fn options_are_read_from_unit_or_fstab() {
    let mut disk = wanted("data");
    disk.options = vec!["noatime".into(), "x=50%".into()];
    let placed = placing(&disk, None);
    let files = placed.files().into_iter().collect();
    assert_eq!(options_of(&files, "data"), ["noatime", "x=50%"]);
    assert!(options_of(&files, "other").is_empty());
    let fstab = [(FSTAB.to_owned(), placed.fstab("UUID=1 / ext4 ro 0 1\n", &[]))].into();
    assert_eq!(options_of(&fstab, "data"), ["noatime", "x=50%"]);
    assert!(options_of(&fstab, "other").is_empty());
}

#[test]
fn place_unit_binds_only_from_the_mounted_filesystem() {
    let disk = shared(wanted("data"));
    let files = placing(&disk, None).files();
    assert_eq!(files.len(), 5);
    assert_eq!(
        text(&files, "/srv-data.mount"),
        "# Written by virtfleet-agent for the disk \"data\" of its settings, and again when it is changed.\n\
         [Unit]\n\
         X-Virtfleet-Disk=data\n\
         Description=Secondary disk data at /srv/data (virtfleet)\n\
         DefaultDependencies=no\n\
         Conflicts=umount.target\n\
         Before=umount.target containerd.service docker.service crio.service kubelet.service\n\
         BindsTo=var-lib-virtfleet\\x2ddisks-data.mount\n\
         After=local-fs-pre.target var-lib-virtfleet\\x2ddisks-data.mount\n\
         AssertPathIsMountPoint=/var/lib/virtfleet-disks/data\n\
         AssertPathIsDirectory=/var/lib/virtfleet-disks/data/srv-data\n\n\
         [Mount]\n\
         What=/var/lib/virtfleet-disks/data/srv-data\n\
         Where=/srv/data\n\
         Type=none\n\
         Options=bind\n"
    );
    assert!(
        text(&files, "/var-lib-virtfleet\\x2ddisks-data.mount")
            .contains("Where=/var/lib/virtfleet-disks/data\n")
    );
    let wants = text(&files, "multi-user.target.d/50-virtfleet-disk-data.conf");
    assert!(
        wants.ends_with("Wants=var-lib-virtfleet\\x2ddisks-data.mount mnt-data.mount srv-data.mount\n"),
        "{wants}"
    );
    // The disk's options are not those of the bind mounts.
    let mut with_options = disk.clone();
    with_options.options = vec!["noatime".into()];
    let files: BTreeMap<String, String> = placing(&with_options, None).files().into_iter().collect();
    assert_eq!(options_of(&files, "data"), ["noatime"]);
    let places: Vec<&str> = files.values().flat_map(|text| places_of(text)).collect();
    assert_eq!(
        places,
        ["/mnt/data", "/srv/data", "/var/lib/virtfleet-disks/data"]
    );
}

#[test]
fn without_systemd_places_have_fstab_lines() {
    let disk = shared(wanted("data"));
    let other = wanted("data-2");
    let root = "UUID=1 / ext4 ro 0 1\n";
    let lines = "# virtfleet disk data\n\
        UUID=11111111-2222-4333-8444-555555555555 /var/lib/virtfleet-disks/data ext4 nofail,x-systemd.device-timeout=30s 0 2\n\
        # virtfleet disk data at /mnt/data\n\
        /var/lib/virtfleet-disks/data/mnt-data /mnt/data none bind,nofail 0 0\n\
        # virtfleet disk data at /srv/data\n\
        /var/lib/virtfleet-disks/data/srv-data /srv/data none bind,nofail 0 0\n";
    let text = placing(&disk, None).fstab(root, &[]);
    assert_eq!(text, format!("{root}{lines}"));
    assert_eq!(placing(&disk, None).fstab(&text, &[]), text);
    // A refused place gets no new line, and keeps an existing one.
    let held = placing(&disk, None).fstab(root, &["/srv/data"]);
    assert!(
        held.contains(" /mnt/data ") && !held.contains(" /srv/data "),
        "{held}"
    );
    assert_eq!(placing(&disk, None).fstab(&text, &["/srv/data"]), text);
    // A disk whose name has the same prefix is another one.
    let both = placing(&other, None).fstab(&text, &[]);
    let mut fewer = disk;
    fewer.binds.remove(0);
    let fewer = placing(&fewer, None).fstab(&both, &[]);
    assert!(
        !fewer.contains("/mnt/data ") && fewer.contains("/mnt/data-2 "),
        "{fewer}"
    );
    assert_eq!(
        places_of(&fewer),
        ["/var/lib/virtfleet-disks/data", "/srv/data", "/mnt/data-2"]
    );
    assert_eq!(
        options_of(&[(FSTAB.to_owned(), both)].into(), "data"),
        Vec::<String>::new()
    );
}
