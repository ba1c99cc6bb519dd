mod images;

use images::{WORDS, btrfs, ext4, put, sealed, swap, xfs, xfs_with};

use super::{
    super::{fixtures, journal::Progress},
    *,
};

/// On a device of the filesystem's size.
fn area(head: &[u8], root: &[u8]) -> Option<FileArea> {
    let superblock = Superblock::parse(head).unwrap();
    FileArea::of(&superblock, head, root, superblock.filesystem_bytes.unwrap())
}

fn signature(offset: u64, kind: &str) -> Signature {
    Signature {
        offset,
        kind: kind.to_owned(),
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn kind_and_uuid_of_a_finished_entry_identify_it() {
    use Progress::{Encrypted, Formatted, Intended, Seeded, Seeding, Used};
    let device = fixtures::device(1, Some("s-data"));
    let superblock = |kind: &str, uuid: Option<&str>| Superblock {
        kind: kind.into(),
        uuid: uuid.map(str::to_owned),
        ..Superblock::default()
    };
    let uuid = fixtures::fs_uuid("data");
    let own = superblock("ext4", Some(&uuid));
    for (progress, is_own) in [
        (Intended, false),
        (Encrypted, false),
        (Formatted, true),
        (Seeding, true),
        (Seeded, true),
        (Used, true),
    ] {
        let entry = fixtures::entry("data", &device, progress);
        assert_eq!(own.is_of(&entry), is_own, "{progress:?}");
    }
    let entry = fixtures::entry("data", &device, Used);
    for other in [
        superblock("xfs", Some(&uuid)),
        superblock("ext4", Some(WORDS)),
        superblock("ext4", None),
    ] {
        assert!(!other.is_of(&entry), "{other:?}");
    }
    let newer = Entry {
        format: super::super::journal::FORMAT + 1,
        ..entry.clone()
    };
    assert!(!own.is_of(&newer), "an entry of a newer agent");
    let encrypted = Entry {
        luks_uuid: Some(WORDS.into()),
        progress: Encrypted,
        ..entry.clone()
    };
    assert!(encrypted.records("crypto_LUKS", Some(WORDS)) && !encrypted.records("ext4", Some(&uuid)));
    assert!(!entry.records("crypto_LUKS", Some(&uuid)) && !entry.records("crypto_LUKS", None));
}

#[test]
fn file_data_of_ext4_begins_behind_the_inode_tables() {
    let head = ext4();
    assert_eq!(area(&head, &[]).unwrap().bytes, 2740 * 1024..80 << 20);
    // Without flexible groups only the first group counts. Its end does not matter if a ZFS pool
    // could be behind it.
    for (inodes, start) in [(976_u32, 544 << 10), (16, 512 << 10)] {
        let mut rigid = head.clone();
        let sb = &mut rigid[EXT4_AT..];
        put(sb, 0x28, &inodes.to_le_bytes());
        put(sb, 0x60, &0xC2_u32.to_le_bytes());
        let sum = crc32c(!0, &sb[..0x3FC]);
        put(sb, 0x3FC, &sum.to_le_bytes());
        assert_eq!(area(&rigid, &[]).unwrap().bytes.start, start, "{inodes}");
    }
    for (what, at) in [
        ("superblock", EXT4_AT + 0x200),
        ("first descriptor", 2048),
        ("last descriptor", 2048 + 64 * 9 + 0x20),
    ] {
        let mut torn = head.clone();
        torn[at] ^= 1;
        assert_eq!(area(&torn, &[]), None, "{what}");
    }
    assert_eq!(area(&head[..2048 + 64], &[]), None, "too little was read");
}

#[test]
fn file_data_of_xfs_begins_behind_the_trees_of_each_group() {
    for (block, sector, start) in [
        (1024, 512, 32 << 10),
        (4096, 512, 32 << 10),
        (4096, 4096, 40 << 10),
        (65536, 512, 448 << 10),
    ] {
        let (head, root) = xfs_with(block, sector, 64 << 10);
        let superblock = Superblock::parse(&head).unwrap();
        let place = Region {
            offset: 128 * 512,
            length: 512,
        };
        assert_eq!(xfs_root(&superblock, &head), Some(place), "{block}");
        let area = area(&head, &root).unwrap();
        assert_eq!(area.bytes, start..320 << 20, "{block}");
        for (offset, holds) in [
            (start - 1, false),
            (start, true),
            ((80 << 20) - 1, true),
            (80 << 20, false),
            ((80 << 20) + start, true),
            ((320 << 20) - 1, true),
            (320 << 20, false),
        ] {
            assert_eq!(
                area.holds(&signature(offset, "dos")),
                holds,
                "{offset} with blocks of {block}"
            );
        }
    }
}

/// Otherwise an intact root inode would not show that no pool was made over it.
#[test]
fn file_data_of_xfs_begins_behind_a_root_inode_that_zfs_spares() {
    for place in [128 << 10, 256 << 10, 512 << 10, MIB] {
        let (head, root) = xfs_with(4096, 512, place);
        let area = area(&head, &root).unwrap();
        assert_eq!(area.bytes, place + 512..320 << 20, "{place}");
        assert_eq!(area.group, Some((80 << 20, 32 << 10)), "{place}");
        assert!(
            area.holds(&signature((80 << 20) + (32 << 10), "iso9660")),
            "the root inode is only in the first group"
        );
    }
    // Uberblocks of the first label.
    for place in [256 << 10, MIB] {
        let (head, root) = xfs_with(4096, 512, place);
        assert_eq!(
            foreign(
                &head,
                &root,
                &[(0x2_1000, "zfs_member"), (0x2_2000, "zfs_member")],
                &[]
            ),
            strings(&["zfs_member at byte 135168"]),
            "{place}"
        );
    }
}

#[test]
fn xfs_without_an_intact_root_inode_has_no_known_area() {
    let (head, root) = xfs(4096);
    assert!(area(&head, &root).is_some());
    let mut torn = head.clone();
    torn[300] ^= 1;
    assert_eq!(area(&torn, &root), None);
    assert_eq!(area(&head, &[]), None);
    assert_eq!(area(&head, &[0; 512]), None);
    for (at, value) in [
        (0, b"XX".to_vec()),
        (2, 0o100_644_u16.to_be_bytes().to_vec()),
        (152, 129_u64.to_be_bytes().to_vec()),
        (160, vec![0x22; 16]),
    ] {
        let mut other = root.clone();
        other[100..104].fill(0);
        put(&mut other, at, &value);
        assert_eq!(area(&head, &sealed(other, 100)), None, "changed at {at}");
    }
}

#[test]
fn btrfs_and_swap_have_file_data_from_1_mib_on() {
    for (head, end) in [(btrfs(), 160 << 20), (swap(), 80 << 20)] {
        let area = area(&head, &[]).unwrap();
        assert_eq!((area.bytes, area.group), (MIB..end, None));
    }
    let mut torn = btrfs();
    torn[BTRFS_AT + 2000] ^= 1;
    assert_eq!(area(&torn, &[]), None);
    let mut other = btrfs();
    other[BTRFS_AT + 196] = 1;
    assert_eq!(area(&other, &[]), None, "another checksum than CRC-32C");
}

#[test]
fn arbitrary_bytes_have_no_area_and_do_not_panic() {
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for (head, root) in [(ext4(), vec![]), xfs(4096), (btrfs(), vec![]), (swap(), vec![])] {
        for _ in 0..2000 {
            let mut head = head.clone();
            for _ in 0..4 {
                let at = usize::try_from(next()).unwrap() % head.len().min(4096);
                head[at] = u8::try_from(next() & 0xFF).unwrap();
            }
            let length = usize::try_from(next()).unwrap() % (head.len() + 1);
            if let Some(superblock) = Superblock::parse(&head[..length]) {
                xfs_root(&superblock, &head[..length]);
                FileArea::of(&superblock, &head[..length], &root, next());
            }
        }
    }
}

/// What is foreign on an intact filesystem with these further signatures.
fn foreign(head: &[u8], root: &[u8], others: &[(u64, &str)], found: &[&str]) -> Vec<String> {
    let superblock = Superblock::parse(head).unwrap();
    let place = match superblock.kind.as_str() {
        "xfs" => 0,
        "ext4" => 0x438,
        "btrfs" => 0x10040,
        _ => 0xFF6,
    };
    let others = others.iter().map(|(offset, kind)| signature(*offset, kind));
    let own = signature(place, &superblock.kind);
    let all: Vec<Signature> = others.chain([own]).collect();
    let area = area(head, root);
    OwnFilesystem::new(superblock, area.as_ref(), &all, &strings(found)).foreign
}

#[test]
fn signatures_in_file_data_leave_it_proven() {
    let (xfs, root) = xfs(4096);
    let several = &["several (filesystem)", "several"];
    for (head, root, others, found) in [
        (&xfs, &root[..], &[(0x8001, "iso9660")][..], &several[..]),
        (
            &xfs,
            &root,
            &[(0x3F000, "zfs_member"), (0x3E000, "zfs_member")],
            several,
        ),
        // util-linux #4170: blkid reports only this.
        (&xfs, &root, &[(4 << 20, "crypto_LUKS")], &["crypto_LUKS"]),
        (
            &xfs,
            &root,
            &[((320 << 20) - (192 << 10) - 4096, "linux_raid_member")],
            &["linux_raid_member"],
        ),
        (&ext4(), &[], &[((80 << 20) - 0x5_9000, "zfs_member")], several),
        (
            &btrfs(),
            &[],
            &[(4 << 20, "crypto_LUKS"), (2 << 20, "VMFS")],
            &["crypto_LUKS"],
        ),
        (
            &swap(),
            &[],
            &[((80 << 20) - 0x5_9000, "zfs_member")],
            &["swap", "zfs_member"],
        ),
        // udev has no kinds.
        (&xfs, &root, &[], &[]),
    ] {
        assert_eq!(foreign(head, root, others, found), strings(&[]), "{others:?}");
    }
}

#[test]
fn anything_else_is_foreign() {
    let (xfs, root) = xfs(4096);
    let several = &["several (filesystem)", "several"];
    for (head, root, others, found, said) in [
        (
            &xfs,
            &root[..],
            &[(510, "dos")][..],
            &["xfs", "dos"][..],
            &["dos at byte 510"][..],
        ),
        // Whatever lies in a file besides.
        (
            &xfs,
            &root,
            &[(510, "dos"), (0x8001, "iso9660")],
            several,
            &["dos at byte 510"],
        ),
        // MD 1.2, LUKS, LVM.
        (
            &xfs,
            &root,
            &[(4096, "linux_raid_member")],
            several,
            &["linux_raid_member at byte 4096"],
        ),
        (
            &ext4(),
            &[],
            &[(0, "crypto_LUKS")],
            several,
            &["crypto_LUKS at byte 0"],
        ),
        (
            &ext4(),
            &[],
            &[(0x218, "LVM2_member")],
            several,
            &["LVM2_member at byte 536"],
        ),
        // A second header of LUKS, of a container on the whole device.
        (
            &btrfs(),
            &[],
            &[(16384, "crypto_LUKS")],
            several,
            &["crypto_LUKS at byte 16384"],
        ),
        (
            &swap(),
            &[],
            &[(4096, "linux_raid_member")],
            several,
            &["linux_raid_member at byte 4096"],
        ),
        // The labels of a pool on the whole device, of which only the first is listed here.
        (
            &ext4(),
            &[],
            &[(0x2_1000, "zfs_member"), (0x2_2000, "zfs_member")],
            several,
            &["zfs_member at byte 135168"],
        ),
        (
            &xfs,
            &[],
            &[(0x3F000, "zfs_member")],
            several,
            &["zfs_member at byte 258048", "its start is not intact"],
        ),
        // Another filesystem of that kind, at an offset of another block size.
        (&xfs, &root, &[(4096, "xfs")], several, &["xfs at byte 4096"]),
        // What wipefs does not list.
        (&xfs, &root, &[], &["drbd"], &["drbd"]),
        (&xfs, &root, &[(0x8001, "iso9660")], &["xfs", "sun"], &["sun"]),
        (
            &xfs,
            &root,
            &[],
            several,
            &["content that blkid does not identify"],
        ),
    ] {
        assert_eq!(
            foreign(head, root, others, found),
            strings(said),
            "{others:?} {found:?}"
        );
    }
}

/// MD 1.0 and 0.90, DRBD: made without shrinking the filesystem before.
#[test]
fn metadata_at_the_end_of_the_device_is_foreign() {
    let (xfs, root) = xfs(4096);
    let several = &["several (filesystem)", "several"];
    for (head, root, others, found, said) in [
        (
            &xfs,
            &root[..],
            &[((320 << 20) - 8192, "linux_raid_member")][..],
            &["linux_raid_member"][..],
            &["linux_raid_member at byte 335536128"][..],
        ),
        (
            &ext4(),
            &[],
            &[((80 << 20) - (128 << 10), "linux_raid_member")],
            several,
            &["linux_raid_member at byte 83755008"],
        ),
        (
            &btrfs(),
            &[],
            &[((160 << 20) - 4096 + 60, "drbd")],
            several,
            &["drbd at byte 167768124"],
        ),
        (
            &swap(),
            &[],
            &[(2 << 20, "ddf_raid_member")],
            &["ddf_raid_member"],
            &["ddf_raid_member at byte 2097152"],
        ),
        // Behind the end: half of a mirror.
        (
            &ext4(),
            &[],
            &[(80 << 20, "linux_raid_member")],
            several,
            &["linux_raid_member at byte 83886080"],
        ),
    ] {
        assert_eq!(
            foreign(head, root, others, found),
            strings(said),
            "{others:?} {found:?}"
        );
    }
}

/// With nothing else on the device.
#[test]
fn a_start_that_is_not_intact_is_not_proven() {
    let mut torn = ext4();
    torn[EXT4_AT + 0x200] ^= 1;
    for (head, said) in [(torn, &["its start is not intact"][..]), (ext4(), &[])] {
        assert_eq!(foreign(&head, &[], &[], &[]), strings(said));
    }
}

#[test]
fn a_superblock_that_wipefs_does_not_list_is_not_proven() {
    let (head, root) = xfs(4096);
    let superblock = Superblock::parse(&head).unwrap();
    let area = area(&head, &root);
    for (all, found, said) in [
        (vec![], vec!["dos"], "dos"),
        (vec![signature(0x8001, "iso9660")], vec!["iso9660"], "iso9660"),
        (
            vec![signature(0x438, "xfs")],
            vec![],
            "content that blkid does not identify",
        ),
        (
            vec![signature(0, "ext4")],
            vec![],
            "content that blkid does not identify",
        ),
    ] {
        let own = OwnFilesystem::new(superblock.clone(), area.as_ref(), &all, &strings(&found));
        assert_eq!(own.proven(), None);
        assert_eq!(own.foreign, strings(&[said]));
    }
}

#[test]
fn content_has_the_filesystem_in_place_of_what_blkid_reports() {
    let (head, root) = xfs(4096);
    let superblock = Superblock::parse(&head).unwrap();
    let area = area(&head, &root);
    let all = [
        signature(510, "dos"),
        signature(0x3F000, "zfs_member"),
        signature(0, "xfs"),
        signature(0x3E000, "zfs_member"),
    ];
    let own = OwnFilesystem::new(superblock, area.as_ref(), &all, &strings(&["several"]));
    assert_eq!(own.proven(), None);
    let mut content = Content {
        kind: "several (filesystem)".into(),
        also: strings(&["several"]),
        first_byte: Some(0),
        digest: "d1".into(),
        ..Content::default()
    };
    own.describe(&mut content);
    let expected = Content {
        kind: "xfs".into(),
        also: strings(&["dos at byte 510"]),
        ours: true,
        inside: strings(&["zfs_member at byte 258048"]),
        uuid: Some(WORDS.into()),
        first_byte: Some(0),
        digest: "d1".into(),
        ..Content::default()
    };
    assert_eq!(content, expected);
}
