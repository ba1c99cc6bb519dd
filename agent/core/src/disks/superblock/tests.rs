use super::*;

const UUID: [u8; 16] = [0x11; 16];
const WORDS: &str = "11111111-1111-1111-1111-111111111111";

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// An ext4 as made by mke2fs: 80 MiB in blocks of 1 KiB, created at second 1000.
fn fresh_ext4() -> Vec<u8> {
    let mut head = vec![0; HEAD_BYTES];
    let sb = &mut head[EXT4_AT..];
    put(sb, 0x00, &20480_u32.to_le_bytes());
    put(sb, 0x04, &81920_u32.to_le_bytes());
    put(sb, 0x10, &20469_u32.to_le_bytes());
    put(sb, 0x30, &1001_u32.to_le_bytes());
    put(sb, 0x38, &0xEF53_u16.to_le_bytes());
    put(sb, 0x40, &1000_u32.to_le_bytes());
    put(sb, 0x5C, &0x3C_u32.to_le_bytes());
    put(sb, 0x60, &0x2C2_u32.to_le_bytes());
    put(sb, 0x64, &0x46B_u32.to_le_bytes());
    put(sb, 0x68, &UUID);
    put(sb, 0x78, b"data");
    put(sb, 0x108, &1000_u32.to_le_bytes());
    put(sb, 0x178, &279_u64.to_le_bytes());
    head
}

#[test]
fn fresh_ext4_is_unused() {
    let sb = Superblock::parse(&fresh_ext4()).unwrap();
    assert_eq!(
        sb,
        Superblock {
            kind: "ext4".into(),
            uuid: Some(WORDS.into()),
            label: Some("data".into()),
            filesystem_bytes: Some(80 << 20),
            devices: None,
            made: Some(1000),
            mount_count: Some(0),
            last_mount: None,
            last_write: Some(1001),
            lifetime_bytes: Some(279 << 10),
            used: None,
        }
    );
}

#[test]
fn traces_of_use_of_ext4_are_detected() {
    for (what, at, value) in [
        ("recovery", 0x60, 0x2C6_u32),
        ("mount count", 0x34, 1),
        // e2fsck resets the mount count and keeps the time of the last mount.
        ("mount time", 0x2C, 1500),
        ("check", 0x40, 1500),
        ("inodes", 0x10, 20468),
    ] {
        let mut head = fresh_ext4();
        put(&mut head[EXT4_AT..], at, &value.to_le_bytes());
        assert!(Superblock::parse(&head).unwrap().used.is_some(), "{what}");
    }
}

#[test]
fn xfs_with_a_log_position_or_more_inodes_is_used() {
    let mut head = vec![0; HEAD_BYTES];
    put(&mut head, 0, b"XFSB");
    put(&mut head, 4, &4096_u32.to_be_bytes());
    put(&mut head, 8, &81920_u64.to_be_bytes());
    put(&mut head, 32, &UUID);
    put(&mut head, 100, &0xB4A5_u16.to_be_bytes());
    put(&mut head, 128, &64_u64.to_be_bytes());
    put(&mut head, 136, &61_u64.to_be_bytes());
    let sb = Superblock::parse(&head).unwrap();
    assert_eq!((sb.kind.as_str(), sb.uuid.as_deref()), ("xfs", Some(WORDS)));
    assert_eq!((sb.filesystem_bytes, sb.used), (Some(320 << 20), None));
    let mut mounted = head.clone();
    put(&mut mounted, 240, &0x1_0000_0002_u64.to_be_bytes());
    assert!(Superblock::parse(&mounted).unwrap().used.is_some());
    put(&mut head, 136, &60_u64.to_be_bytes());
    assert!(Superblock::parse(&head).unwrap().used.is_some());
}

#[test]
fn btrfs_with_a_later_generation_is_used() {
    let mut head = vec![0; HEAD_BYTES];
    let sb = BTRFS_AT;
    put(&mut head, sb + 32, &UUID);
    put(&mut head, sb + 64, b"_BHRfS_M");
    put(&mut head, sb + 72, &6_u64.to_le_bytes());
    put(&mut head, sb + 136, &2_u64.to_le_bytes());
    put(&mut head, sb + 209, &(160_u64 << 20).to_le_bytes());
    let parsed = Superblock::parse(&head).unwrap();
    assert_eq!((parsed.kind.as_str(), parsed.used), ("btrfs", None));
    assert_eq!(
        (parsed.filesystem_bytes, parsed.devices),
        (Some(160 << 20), Some(2))
    );
    for (at, value) in [(72, 17_u64), (96, 30_408_704), (563, 7)] {
        let mut used = head.clone();
        put(&mut used, sb + at, &value.to_le_bytes());
        assert!(Superblock::parse(&used).unwrap().used.is_some(), "{at}");
    }
}

#[test]
fn swap_and_vfat_record_no_use() {
    let mut head = vec![0; HEAD_BYTES];
    put(&mut head, 4086, b"SWAPSPACE2");
    put(&mut head, 1028, &2047_u32.to_le_bytes());
    put(&mut head, 1036, &UUID);
    let sb = Superblock::parse(&head).unwrap();
    assert_eq!((sb.kind.as_str(), sb.uuid.as_deref()), ("swap", Some(WORDS)));
    assert_eq!((sb.filesystem_bytes, sb.used), (Some(8 << 20), None));
    let mut head = vec![0; 512];
    put(&mut head, 510, &[0x55, 0xAA]);
    put(&mut head, 0x0B, &512_u16.to_le_bytes());
    put(&mut head, 0x20, &204_800_u32.to_le_bytes());
    put(&mut head, 0x43, &0x1234_ABCD_u32.to_le_bytes());
    put(&mut head, 0x47, b"UEFI       FAT32   ");
    let sb = Superblock::parse(&head).unwrap();
    assert_eq!(
        (sb.uuid.as_deref(), sb.label.as_deref()),
        (Some("1234-ABCD"), Some("UEFI"))
    );
    assert_eq!(sb.filesystem_bytes, Some(100 << 20));
}

#[test]
fn invalid_superblocks_yield_none() {
    for head in [
        vec![],
        vec![0; HEAD_BYTES],
        vec![0xFF; HEAD_BYTES],
        vec![b'x'; 700],
    ] {
        assert_eq!(Superblock::parse(&head), None);
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic(
        at in 0_usize..700,
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..4096),
    ) {
        for mut head in [fresh_ext4(), vec![0; HEAD_BYTES]] {
            let end = (at + bytes.len()).min(head.len());
            let length = end - at;
            put(&mut head, at, &bytes[..length]);
            Superblock::parse(&head);
            Superblock::parse(&head[..end]);
        }
    }
}
