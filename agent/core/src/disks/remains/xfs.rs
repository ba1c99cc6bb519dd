//! xfs, version 5: every metadata block carries a CRC-32C and the filesystem's UUID, and most their
//! address.
//!
//! Offsets are those of `fs/xfs/libxfs/xfs_format.h` and `xfs_log_format.h`. A disk that was begun
//! without checksums (`-m crc=0`) counts as foreign.

use super::{
    super::{checksum::be, checksum::crc32c, checksum::le, probe::Region},
    XFS_GROUP_BYTES, XFS_GROUPS,
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
/// The one record that mkfs.xfs writes: an unmount, in the first cycle of the log. The transaction's
/// identifier is replaced by the cycle, as in every sector of the log.
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

/// The length of the metadata block that begins here.
fn block(bytes: &[u8], place: u64, uuid: &[u8; 16]) -> Option<usize> {
    let (_, checksum, owner, address) = KINDS.into_iter().find(|kind| bytes.starts_with(kind.0))?;
    if bytes.get(owner..owner + 16) != Some(uuid) {
        return None;
    }
    if address.is_some_and(|address| be(bytes, address, 8) != place / SECTOR as u64) {
        return None;
    }
    // The length is that of a sector, block or inode, which only the superblock knows: any power of
    // two for which the checksum is right.
    let lengths = (8..=16).map(|power| 1_usize << power);
    lengths.filter(|length| *length > checksum + 4).find(|length| {
        bytes.get(..*length).is_some_and(|block| {
            let crc = crc32c(!0, &block[..checksum]);
            let crc = crc32c(crc32c(crc, &[0; 4]), &block[checksum + 4..]);
            u64::from(!crc) == le(block, checksum, 4)
        })
    })
}

/// Whether the sector is the header of the first log record, or the record behind it.
fn log(disk: &[u8], at: usize, uuid: &[u8; 16]) -> bool {
    let sector = |at: usize| disk.get(at..at + SECTOR).unwrap_or_default();
    let header = |bytes: &[u8]| {
        be(bytes, 0, 4) == LOG_MAGIC && be(bytes, 4, 4) == 1 && bytes.get(304..320) == Some(uuid)
    };
    let here = sector(at);
    if header(here) {
        // Cycle data of one sector; nothing behind the header.
        return here.get(48..300).is_some_and(super::zero) && here.get(328..).is_some_and(super::zero);
    }
    let before = at.checked_sub(SECTOR).map(sector).unwrap_or_default();
    header(before) && here.starts_with(&UNMOUNT) && super::zero(&here[UNMOUNT.len()..])
}

/// The beginnings of the allocation groups and of the log, when the superblock is ours.
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
    let starts = (0..groups.min(XFS_GROUPS)).map(|number| number.saturating_mul(group));
    starts.chain([log]).map(region).collect()
}
