use proptest::prelude::*;

use super::*;
use crate::procfs::udev::properties;

fn device(disk: &str, name: &str, data: &str) -> Identified {
    Identified {
        name: name.to_owned(),
        disk: disk.to_owned(),
        tags: tags(properties(data)),
    }
}

/// A partition of Debian's cloud image.
fn root(disk: &str) -> Identified {
    device(
        disk,
        &format!("{disk}1"),
        "E:ID_FS_TYPE=ext4\nE:ID_FS_UUID=AAAA-1\nE:ID_FS_LABEL_ENC=cloud\\x20img\nE:ID_PART_ENTRY_UUID=p-1\nE:ID_PART_ENTRY_NAME=rootfs\n",
    )
}

fn short(finding: &Finding) -> (&str, &str) {
    assert_eq!(finding.id, "disk-duplicate-identifiers");
    assert_eq!(finding.severity, Severity::Critical);
    (&finding.subject.name, &finding.message)
}

#[test]
fn clone_of_root_disk_is_critical_and_lists_references() {
    let devices = [
        device("vda", "vda", "E:ID_PART_TABLE_UUID=x\n"),
        root("vda"),
        root("vdb"),
    ];
    let fstab = "# UUID=other /x\nLABEL=\"other\" / ext4\nUUID=aaaa-1 /data ext4 defaults 0 1\n";
    let mut references = of_command_line("BOOT_IMAGE=/x ro root=PARTUUID=P-1 console=ttyS0\n");
    references.extend(of_fstab(fstab));
    let all = findings(&devices, &references);
    assert_eq!(all.len(), 1);
    let (name, message) = short(&all[0]);
    assert_eq!(name, "vda vdb");
    for words in [
        "/dev/vda1 and /dev/vdb1",
        "and 2 more",
        "root= of /proc/cmdline refers to it",
    ] {
        assert!(message.contains(words), "{message}");
    }
    let references = &all[0].evidence["references"];
    assert!(
        references.contains("root= of /proc/cmdline names PARTUUID=p-1"),
        "{references}"
    );
    assert!(
        references.contains("/data in /etc/fstab names UUID=aaaa-1"),
        "{references}"
    );
    let identifiers = &all[0].evidence["identifiers"];
    assert!(
        identifiers.contains("LABEL=cloud img: /dev/vda1 and /dev/vdb1"),
        "{identifiers}"
    );
    // A partition name is reported once something refers to it.
    let named = of_command_line("root=PARTLABEL=rootfs");
    assert!(
        short(&findings(&devices, &named)[0])
            .1
            .contains("PARTLABEL=rootfs")
    );
}

#[test]
fn one_finding_per_group_of_disks() {
    let label = |disk: &str, label: &str| device(disk, disk, &format!("E:ID_FS_LABEL={label}\n"));
    let same_disk = [
        root("vda"),
        Identified {
            name: "vda2".to_owned(),
            ..root("vda")
        },
    ];
    assert!(findings(&same_disk, &[]).is_empty());
    let all = findings(
        &[
            root("vda"),
            root("vdb"),
            root("vdc"),
            label("vdd", "x"),
            label("vde", "x"),
        ],
        &[],
    );
    let names: Vec<&str> = all.iter().map(|one| short(one).0).collect();
    assert_eq!(names, ["vda vdb vdc", "vdd vde"]);
    assert!(
        short(&all[1])
            .1
            .contains("nothing in /proc/cmdline or /etc/fstab refers to it")
    );
    assert!(findings(&[label("vda", "x"), label("vdb", "y"), label("vdc", "")], &[]).is_empty());
}

/// Equal identifiers are intended here.
#[test]
fn raid_and_multipath_members_are_not_reported() {
    let pair = |data: &str| findings(&[device("vda", "vda", data), device("vdb", "vdb", data)], &[]).len();
    assert_eq!(
        pair("E:ID_FS_TYPE=linux_raid_member\nE:ID_FS_UUID=a\nE:ID_FS_LABEL=h:0\n"),
        0
    );
    assert_eq!(pair("E:ID_FS_TYPE=zfs_member\nE:ID_FS_UUID=a\n"), 0);
    assert_eq!(pair("E:DM_MULTIPATH_DEVICE_PATH=1\nE:ID_FS_UUID=a\n"), 0);
    assert_eq!(pair("E:ID_FS_TYPE=LVM2_member\nE:ID_FS_UUID=a\n"), 1);
    assert_eq!(pair("E:ID_FS_TYPE=crypto_LUKS\nE:ID_FS_UUID=a\n"), 1);
    let btrfs =
        |sub: &str| format!("E:ID_FS_TYPE=btrfs\nE:ID_FS_UUID=a\nE:ID_FS_LABEL=l\nE:ID_FS_UUID_SUB={sub}\n");
    assert_eq!(pair(&btrfs("s")), 1);
    let several = [
        device("vda", "vda", &btrfs("1")),
        device("vdb", "vdb", &btrfs("2")),
    ];
    assert!(findings(&several, &[]).is_empty());
}

#[test]
fn references_are_parsed_in_all_notations() {
    let one = |text: &str| reference(text).map(|tag| tag.to_string());
    assert_eq!(one("UUID=\"AB-1\"").unwrap(), "UUID=ab-1");
    assert_eq!(
        one("/dev/disk/by-label/cloud\\x20img").unwrap(),
        "LABEL=cloud img"
    );
    assert_eq!(one("/dev/disk/by-partuuid/P-1").unwrap(), "PARTUUID=p-1");
    assert_eq!(one("PARTLABEL=root").unwrap(), "PARTLABEL=root");
    for none in ["/dev/vda1", "UUID=", "UUIDX=1", "tmpfs", ""] {
        assert_eq!(one(none), None, "{none}");
    }
    let root = of_command_line("root=PARTUUID=p-1/PARTNROFF=1 quiet");
    assert_eq!(
        (root.len(), root[0].tag.to_string()),
        (1, "PARTUUID=p-1".to_owned())
    );
}

proptest! {
    #[test]
    fn no_text_panics(text in "(\\PC|\\\\x|[0-9a-f]){0,40}") {
        let _ = (decode(&text), of_fstab(&text), of_command_line(&text), reference(&text));
    }

    #[test]
    fn udev_escapes_are_decoded(label in "[ -~]{1,16}") {
        let encoded: Vec<String> = label.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
        prop_assert_eq!(decode(&encoded.concat()), label);
    }
}
