//! Heads of filesystems, as mkfs writes them.

use super::super::{super::superblock::HEAD_BYTES, *};

pub(super) const UUID: [u8; 16] = [0x11; 16];
pub(super) const WORDS: &str = "11111111-1111-1111-1111-111111111111";

pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// An ext4 of 80 MiB in blocks of 1 KiB, in ten groups of which a flexible group has 16. Its inode
/// tables end at block 2740.
pub(super) fn ext4() -> Vec<u8> {
    let mut head = vec![0; HEAD_BYTES];
    let sb = &mut head[EXT4_AT..];
    put(sb, 0x04, &81920_u32.to_le_bytes());
    put(sb, 0x14, &1_u32.to_le_bytes());
    put(sb, 0x20, &8192_u32.to_le_bytes());
    put(sb, 0x28, &976_u32.to_le_bytes());
    put(sb, 0x38, &0xEF53_u16.to_le_bytes());
    put(sb, 0x58, &256_u16.to_le_bytes());
    put(sb, 0x60, &0x2C2_u32.to_le_bytes());
    put(sb, 0x64, &0x46B_u32.to_le_bytes());
    put(sb, 0x68, &UUID);
    put(sb, 0xFE, &64_u16.to_le_bytes());
    put(sb, 0x174, &[4]);
    let sum = crc32c(!0, &sb[..0x3FC]);
    put(sb, 0x3FC, &sum.to_le_bytes());
    for group in 0..10 {
        let at = 2048 + 64 * group;
        let descriptor = &mut head[at..at + 64];
        let number = u32::try_from(group).unwrap();
        put(descriptor, 0x00, &(259 + number).to_le_bytes());
        put(descriptor, 0x04, &(275 + number).to_le_bytes());
        put(descriptor, 0x08, &(300 + 244 * number).to_le_bytes());
        let sum = crc32c(crc32c(crc32c(!0, &UUID), &number.to_le_bytes()), descriptor);
        let sum = u16::try_from(sum & 0xFFFF).unwrap();
        put(descriptor, 0x1E, &sum.to_le_bytes());
    }
    head
}

/// Adds the checksum of xfs.
pub(super) fn sealed(mut block: Vec<u8>, checksum: usize) -> Vec<u8> {
    let sum = !crc32c(!0, &block);
    put(&mut block, checksum, &sum.to_le_bytes());
    block
}

/// Superblock and root inode of an xfs with blocks of this size, sectors of 512 bytes, and the root
/// inode where mkfs puts it if the disk has no geometry.
pub(super) fn xfs(block: u32) -> (Vec<u8>, Vec<u8>) {
    xfs_with(block, 512, 64 << 10)
}

/// The same, of 320 MiB in four groups, with its root inode at this offset.
pub(super) fn xfs_with(block: u32, sector: u16, root: u64) -> (Vec<u8>, Vec<u8>) {
    let inode = root / 512;
    let mut sb = vec![0; sector.into()];
    put(&mut sb, 0, b"XFSB");
    put(&mut sb, 4, &block.to_be_bytes());
    put(
        &mut sb,
        8,
        &(320_u64 << 20 >> block.trailing_zeros()).to_be_bytes(),
    );
    put(&mut sb, 32, &UUID);
    put(&mut sb, 56, &inode.to_be_bytes());
    put(
        &mut sb,
        84,
        &(80_u32 << 20 >> block.trailing_zeros()).to_be_bytes(),
    );
    put(&mut sb, 100, &0xB4A5_u16.to_be_bytes());
    put(&mut sb, 102, &sector.to_be_bytes());
    put(&mut sb, 104, &512_u16.to_be_bytes());
    put(
        &mut sb,
        123,
        &[u8::try_from(block.trailing_zeros()).unwrap() - 9, 17],
    );
    let mut head = sealed(sb, 224);
    head.resize(HEAD_BYTES, 0);
    let mut root = vec![0; 512];
    put(&mut root, 0, b"IN");
    put(&mut root, 2, &0o40755_u16.to_be_bytes());
    put(&mut root, 152, &inode.to_be_bytes());
    put(&mut root, 160, &UUID);
    (head, sealed(root, 100))
}

pub(super) fn btrfs() -> Vec<u8> {
    let mut head = vec![0; HEAD_BYTES];
    let sb = &mut head[BTRFS_AT..BTRFS_AT + 4096];
    put(sb, 32, &UUID);
    put(sb, 64, b"_BHRfS_M");
    put(sb, 209, &(160_u64 << 20).to_le_bytes());
    let sum = !crc32c(!0, &sb[32..]);
    put(sb, 0, &sum.to_le_bytes());
    head
}

pub(super) fn swap() -> Vec<u8> {
    let mut head = vec![0; HEAD_BYTES];
    put(&mut head, 4086, b"SWAPSPACE2");
    put(&mut head, 1028, &20479_u32.to_le_bytes());
    put(&mut head, 1036, &UUID);
    head
}
