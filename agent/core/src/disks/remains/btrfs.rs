//! btrfs: superblocks and tree blocks carry a checksum, the filesystem's UUID and their address.
//!
//! Offsets are those of `struct btrfs_super_block` and `struct btrfs_header` in
//! `include/uapi/linux/btrfs_tree.h`. Only CRC-32C, the default, is supported; content with another
//! checksum counts as foreign.

use super::super::on_disk::{crc32c, le};

const SECTOR: usize = 4096;
/// Offsets of the superblocks: `btrfs_sb_offset`.
const SUPERBLOCKS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
/// Magic numbers of a superblock: while mkfs.btrfs runs, and after it finished.
const MAGIC: [&[u8]; 2] = [b"!BHRfS_M", b"_BHRfS_M"];

pub(super) fn foreign(offset: u64, disk: &[u8], uuid: &[u8; 16]) -> Option<usize> {
    let mut at = 0;
    while at < disk.len() {
        let sector = &disk[at..(at + SECTOR).min(disk.len())];
        if super::zero(sector) {
            at += SECTOR;
            continue;
        }
        let place = offset + at as u64;
        let length = if SUPERBLOCKS.contains(&place) {
            superblock(sector, place, uuid).then_some(SECTOR)
        } else {
            block(&disk[at..], uuid)
        };
        match length {
            Some(length) => at += length,
            None => return super::first(disk, at),
        }
    }
    None
}

fn superblock(sector: &[u8], place: u64, uuid: &[u8; 16]) -> bool {
    sector.len() == SECTOR
        && sector.get(64..72).is_some_and(|magic| MAGIC.contains(&magic))
        && ours(sector, uuid)
        && le(sector, 48, 8) == place
}

/// Length of the tree block that begins here.
fn block(bytes: &[u8], uuid: &[u8; 16]) -> Option<usize> {
    let lengths = [16 << 10, 4 << 10, 8 << 10, 32 << 10, 64 << 10];
    lengths
        .into_iter()
        .find(|length| bytes.get(..*length).is_some_and(|block| ours(block, uuid)))
}

/// Checks checksum and UUID. The address in a tree block is logical, so it is not compared.
fn ours(block: &[u8], uuid: &[u8; 16]) -> bool {
    block.get(32..48) == Some(uuid)
        && zero_tail(block)
        && u64::from(!crc32c(!0, block.get(32..).unwrap_or_default())) == le(block, 0, 4)
}

/// Whether the part of the checksum field that CRC-32C does not use is zero.
fn zero_tail(block: &[u8]) -> bool {
    block.get(4..32).is_some_and(super::zero)
}
