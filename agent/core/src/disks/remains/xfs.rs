//! xfs, version 5: every metadata block has a CRC-32C and the filesystem's UUID, and most have
//! their address.
//!
//! Offsets are those of `fs/xfs/libxfs/xfs_format.h` and `xfs_log_format.h`. Content without
//! checksums (`-m crc=0`) counts as foreign.

use super::{
    super::{
        on_disk::{be, crc32c, le},
        probe::Region,
    },
    MAX_XFS_GROUPS, XFS_GROUP_BYTES,
};

const SECTOR: usize = 512;
/// Magic number, offset of the checksum, offset of the UUID, offset of the address in sectors.
type Kind = (&'static [u8], usize, usize, Option<usize>);
const KINDS: [Kind; 12] = [
    (b"XFSB", 224, 32, None),
    (b"XAGF", 216, 64, None),
    (b"XAGI", 312, 296, None),
    (b"XAFL", 32, 8, None),
    (b"AB3B", 52, 32, Some(16)),
    (b"AB3C", 52, 32, Some(16)),
    (b"IAB3", 52, 32, Some(16)),
    (b"FIB3", 52, 32, Some(16)),
    (b"RMB3", 52, 32, Some(16)),
    (b"R3FC", 52, 32, Some(16)),
    (b"IN", 100, 160, None),
    (b"XDB3", 4, 24, Some(8)),
];
const LOG_MAGIC: u64 = 0xFEED_BABE;
/// The only log record that mkfs.xfs writes: an unmount, in the first cycle of the log. As in every
/// log sector, the cycle number replaces the first word, here the transaction's identifier.
const UNMOUNT: [u8; 14] = [0, 0, 0, 1, 0, 0, 0, 8, 0xAA, 0x20, 0, 0, 0x6E, 0x55];

pub(super) fn foreign(offset: u64, disk: &[u8], uuid: &[u8; 16]) -> Option<usize> {
    let mut at = 0;
    while at < disk.len() {
        let sector = &disk[at..(at + SECTOR).min(disk.len())];
        if super::zero(sector) {
            at += SECTOR;
            continue;
        }
        let length =
            block(&disk[at..], offset + at as u64, uuid).or_else(|| log(disk, at, uuid).then_some(SECTOR));
        match length {
            Some(length) => at += length,
            None => return super::first(disk, at),
        }
    }
    None
}

/// Length of the metadata block that begins here; `None` if there is none with this UUID and a
/// valid checksum.
pub(in super::super) fn block(bytes: &[u8], place: u64, uuid: &[u8; 16]) -> Option<usize> {
    let (_, checksum, owner, address) = KINDS.into_iter().find(|kind| bytes.starts_with(kind.0))?;
    if bytes.get(owner..owner + 16) != Some(uuid) {
        return None;
    }
    if address.is_some_and(|address| be(bytes, address, 8) != place / SECTOR as u64) {
        return None;
    }
    // The length is that of a sector, block or inode, which only the superblock contains: accept
    // any power of two for which the checksum is valid.
    let lengths = (8..=16).map(|power| 1_usize << power);
    lengths.filter(|length| *length > checksum + 4).find(|length| {
        bytes.get(..*length).is_some_and(|block| {
            let crc = crc32c(!0, &block[..checksum]);
            let crc = crc32c(crc32c(crc, &[0; 4]), &block[checksum + 4..]);
            u64::from(!crc) == le(block, checksum, 4)
        })
    })
}

/// Whether the sector is the header of the first log record, or the record after it.
fn log(disk: &[u8], at: usize, uuid: &[u8; 16]) -> bool {
    let sector = |at: usize| disk.get(at..at + SECTOR).unwrap_or_default();
    let header = |bytes: &[u8]| {
        be(bytes, 0, 4) == LOG_MAGIC && be(bytes, 4, 4) == 1 && bytes.get(304..320) == Some(uuid)
    };
    let here = sector(at);
    if header(here) {
        // Cycle data of one sector, and zeros after the header.
        return here.get(48..300).is_some_and(super::zero) && here.get(328..).is_some_and(super::zero);
    }
    let before = at.checked_sub(SECTOR).map(sector).unwrap_or_default();
    header(before) && here.starts_with(&UNMOUNT) && super::zero(&here[UNMOUNT.len()..])
}

/// Returns the starts of the allocation groups and of the log, if the superblock has the UUID.
pub(super) fn places(head: &[u8], uuid: &[u8; 16]) -> Vec<Region> {
    if block(head, 0, uuid).is_none() {
        return Vec::new();
    }
    let (size, group, groups) = (be(head, 4, 4), be(head, 84, 4), be(head, 88, 4));
    let region = |block: u64| Region {
        offset: block.saturating_mul(size),
        length: XFS_GROUP_BYTES,
    };
    // sb_logstart packs the group's number above `agblklog` bits.
    let (log, bits) = (be(head, 48, 8), be(head, 124, 1).min(63));
    let log = (log >> bits)
        .saturating_mul(group)
        .saturating_add(log & ((1 << bits) - 1));
    let starts = (0..groups.min(MAX_XFS_GROUPS)).map(|number| number.saturating_mul(group));
    starts.chain([log]).map(region).collect()
}
