use super::*;
use crate::disks::on_disk::crc32c;

const UUID: [u8; 16] = [0x11; 16];
const WORDS: &str = "11111111-1111-1111-1111-111111111111";
const SIZE: u64 = 1 << 30;

fn remains(filesystem: &str) -> Remains {
    Remains::new(filesystem, WORDS, Some("data"), SIZE).unwrap()
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// A piece with superblock and inode of an ext4 whose inode table begins at 16 KiB.
fn ext4() -> Vec<u8> {
    let mut piece = vec![0; 64 << 10];
    put(&mut piece, 1024 + 0x18, &2_u32.to_le_bytes());
    put(&mut piece, 1024 + 0x30, b"time");
    put(&mut piece, 1024 + 0x38, &0xEF53_u16.to_le_bytes());
    put(&mut piece, 1024 + 0x58, &256_u16.to_le_bytes());
    put(&mut piece, 1024 + 0x68, &UUID);
    put(&mut piece, 4096 + 0x08, &4_u32.to_le_bytes());
    put(&mut piece, 16384 + 256, b"inode two");
    put(&mut piece, 40000, b"bitmap");
    piece
}

#[test]
fn ext4_differs_from_reference_only_in_times_and_checksums() {
    let reference = ext4();
    let mut ours = remains("ext4");
    assert!(ours.needs_reference());
    assert_eq!(
        ours.foreign(0, &reference, &reference),
        Some(1048),
        "no layout yet"
    );
    assert!(ours.read_reference(&reference));
    assert_eq!(ours.foreign(0, &reference, &reference), None);
    assert_eq!(
        ours.foreign(0, &vec![0; 64 << 10], &reference),
        None,
        "nothing written yet"
    );
    for (at, foreign) in [
        (1024 + 0x30, false),
        (1024 + 0x3FC, false),
        (1024 + 0xEC, false),
        (1024 + 0x3C, true),
        (16384 + 256 + 0x0C, false),
        (16384 + 256 + 0x20, true),
        // After the inodes that mke2fs writes.
        (16384 + 20 * 256 + 0x0C, true),
        (40003, true),
        (60000, true),
        (0, true),
    ] {
        let mut disk = reference.clone();
        disk[at] ^= 0x55;
        let found = ours.foreign(0, &disk, &reference);
        assert_eq!(found, foreign.then_some(at as u64), "{at}");
    }
    // An intermediate version of an inode, with a valid checksum.
    let mut disk = reference.clone();
    let inode = 16384 + 256;
    put(&mut disk, inode, b"inode yet");
    put(&mut disk, inode + 0x7C, &[0; 2]);
    put(&mut disk, inode + 0x80, &[32, 0, 0, 0]);
    let crc = crc32c(crc32c(crc32c(!0, &UUID), &2_u32.to_le_bytes()), &[0; 4]);
    let crc = crc32c(crc, &disk[inode..inode + 256]).to_le_bytes();
    put(&mut disk, inode + 0x7C, &crc[..2]);
    put(&mut disk, inode + 0x82, &crc[2..]);
    assert_eq!(ours.foreign(0, &disk, &reference), None);
    disk[inode + 40] ^= 1;
    assert!(ours.foreign(0, &disk, &reference).is_some());
    // An inode with only half a checksum.
    disk[inode..inode + 256].fill(0);
    let crc = crc32c(crc32c(crc32c(!0, &UUID), &2_u32.to_le_bytes()), &[0; 260]).to_le_bytes();
    put(&mut disk, inode + 0x7C, &crc[..2]);
    assert_eq!(ours.foreign(0, &disk, &reference), None);
    disk[inode + 40] = 1;
    assert!(ours.foreign(0, &disk, &reference).is_some());
    let mut disk = vec![0; 64 << 10];
    disk[70] = 1;
    assert_eq!(ours.foreign(1 << 20, &disk, &[]), Some((1 << 20) + 70));
    assert!(!ours.read_reference(&[0; 4096]));
    assert!(!ours.read_reference(&[]));
}

fn sealed(block: &mut [u8], field: usize) {
    block[field..field + 4].fill(0);
    let crc = !crc32c(!0, block);
    put(block, field, &crc.to_le_bytes());
}

#[test]
fn xfs_blocks_are_recognised_by_checksum_uuid_and_address() {
    let ours = remains("xfs");
    let offset = 5_u64 << 20;
    let mut block = vec![0; 4096];
    put(&mut block, 0, b"AB3B");
    put(&mut block, 16, &((offset + 4096) / 512).to_be_bytes());
    put(&mut block, 32, &UUID);
    sealed(&mut block, 52);
    let mut inode = vec![0; 512];
    put(&mut inode, 0, b"IN");
    put(&mut inode, 160, &UUID);
    sealed(&mut inode, 100);
    let mut piece = vec![0; 64 << 10];
    put(&mut piece, 4096, &block);
    put(&mut piece, 8192, &inode);
    assert_eq!(ours.foreign(offset, &piece, &[]), None);
    // At another position its address is wrong.
    assert_eq!(
        ours.foreign(offset + (1 << 20), &piece, &[]),
        Some(offset + (1 << 20) + 4096)
    );
    for at in [4096 + 100, 4096 + 32, 4096 + 52, 8192 + 300, 100, 65535] {
        let mut changed = piece.clone();
        changed[at] ^= 1;
        assert!(ours.foreign(offset, &changed, &[]).is_some(), "{at}");
    }
    // Checksum and UUID are at different offsets per kind, also after 256 bytes.
    for (magic, checksum, owner) in [
        (&b"XFSB"[..], 224, 32),
        (b"XAGF", 216, 64),
        (b"XAGI", 312, 296),
        (b"XAFL", 32, 8),
    ] {
        for length in [512_usize, 4096] {
            let mut sector = vec![0; 64 << 10];
            put(&mut sector, 0, magic);
            put(&mut sector, owner, &UUID);
            sealed(&mut sector[..length], checksum);
            assert_eq!(ours.foreign(offset, &sector, &[]), None, "{magic:?} {length}");
            sector[400] ^= 1;
            assert!(ours.foreign(offset, &sector, &[]).is_some(), "{magic:?} {length}");
        }
    }
    let other = Remains::new("xfs", "21111111-1111-1111-1111-111111111111", None, SIZE).unwrap();
    assert!(other.foreign(offset, &piece, &[]).is_some());
}

#[test]
fn btrfs_blocks_are_recognised_by_checksum_and_uuid() {
    let ours = remains("btrfs");
    let seal = |block: &mut [u8]| {
        let crc = !crc32c(!0, &block[32..]);
        put(block, 0, &crc.to_le_bytes());
    };
    for magic in [b"!BHRfS_M", b"_BHRfS_M"] {
        let mut piece = vec![0; 64 << 10];
        put(&mut piece, 32, &UUID);
        put(&mut piece, 48, &(64_u64 << 10).to_le_bytes());
        put(&mut piece, 64, magic);
        seal(&mut piece[..4096]);
        assert_eq!(ours.foreign(64 << 10, &piece, &[]), None);
        assert!(ours.foreign(64 << 20, &piece, &[]).is_some(), "another address");
        piece[5000] = 1;
        assert_eq!(ours.foreign(64 << 10, &piece, &[]), Some((64 << 10) + 5000));
    }
    for length in [4096_usize, 16384, 65536] {
        let mut piece = vec![0; 64 << 10];
        put(&mut piece, 32, &UUID);
        put(&mut piece, 100, b"tree");
        seal(&mut piece[..length]);
        assert_eq!(ours.foreign(1 << 20, &piece, &[]), None, "{length}");
        piece[length - 1] ^= 1;
        assert!(ours.foreign(1 << 20, &piece, &[]).is_some(), "{length}");
    }
}

#[test]
fn swap_header_page_is_recognised() {
    let ours = remains("swap");
    let mut piece = vec![0; 64 << 10];
    put(&mut piece, 1024, &1_u32.to_ne_bytes());
    put(&mut piece, 1028, &262_143_u32.to_ne_bytes());
    put(&mut piece, 1036, &UUID);
    put(&mut piece, 1052, b"data");
    put(&mut piece, 4086, b"SWAPSPACE2");
    assert_eq!(ours.foreign(0, &piece, &[]), None);
    for at in [0, 1024, 1040, 4095, 4096, 65535] {
        let mut changed = piece.clone();
        changed[at] ^= 1;
        assert!(ours.foreign(0, &changed, &[]).is_some(), "{at}");
    }
    assert_eq!(ours.foreign(1 << 20, &piece, &[]), Some((1 << 20) + 1024));
}

#[test]
fn regions_are_widened_merged_and_cut() {
    let region = |offset, length| Region { offset, length };
    let ours = remains("xfs");
    assert_eq!(
        ours.widened([
            region(SIZE - 100, 4096),
            region(70 << 10, 4096),
            region(130 << 10, 1),
            region(SIZE + 5, 10),
            region(u64::MAX, 10),
        ]),
        [region(64 << 10, 128 << 10), region(SIZE - PIECE, PIECE)]
    );
    let small = Remains::new("swap", WORDS, None, 64 << 20).unwrap();
    assert_eq!(small.widened([]), [region(0, 64 << 20)]);
    assert_eq!(Remains::new("ntfs", WORDS, None, SIZE), None);
    assert_eq!(Remains::new("xfs", "none", None, SIZE), None);
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic(
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..5000),
        magic in proptest::sample::select(vec![
            &b"XFSB"[..], b"XAGF", b"XAGI", b"XAFL", b"AB3B", b"IN", b"XDB3", b"\xFE\xED\xBA\xBE",
        ]),
        cut in 0_usize..6000,
    ) {
        let mut disk = vec![0; 512];
        for owner in [8, 24, 32, 64, 160, 296] {
            put(&mut disk, owner, &UUID);
        }
        disk[..magic.len()].copy_from_slice(magic);
        disk.extend(&bytes);
        disk.truncate(cut);
        for kind in ["ext4", "xfs", "btrfs", "swap"] {
            let mut ours = remains(kind);
            ours.foreign(0, &disk, &[]);
            ours.foreign(0, &disk, &bytes);
            ours.places(&disk);
            ours.read_reference(&ext4());
            ours.foreign(64 << 10, &disk, &bytes);
        }
    }
}
