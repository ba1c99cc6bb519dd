//! ext4: compares with the reference byte by byte, except times, the hash seed and checksums over
//! these; and accepts inodes with a valid checksum.
//!
//! Offsets are those of `struct ext4_super_block` and `struct ext4_inode` in `fs/ext4/ext4.h`.
//! Verified by comparing runs of mke2fs 1.47.0 with equal arguments at different times.

use std::ops::Range;

use super::super::{
    on_disk::{crc32c, le},
    superblock::EXT4_AT,
};

const SECTOR: usize = 512;
const SUPERBLOCK: usize = 1024;
/// Number of inodes that mke2fs writes, reserved ones and `lost+found`, rounded up.
const INODES: u64 = 16;
/// Times, hash seed, RAID geometry (which a file does not have), written bytes, checksum.
const SUPERBLOCK_VARIES: [Range<usize>; 9] = [
    0x2C..0x34,
    0x40..0x44,
    0xEC..0xFC,
    0x108..0x10C,
    0x164..0x166,
    0x170..0x174,
    0x178..0x180,
    0x274..0x278,
    0x3FC..0x400,
];
/// Access, change and modification time; checksum; the extra bits of the same times.
const INODE_VARIES: [Range<usize>; 4] = [0x08..0x14, 0x7C..0x7E, 0x82..0x84, 0x84..0x98];

/// Position of the inodes in the reference, and its UUID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    uuid: [u8; 16],
    /// Size of an inode in bytes.
    inode: usize,
    /// Offset of the inode table of the first group in bytes.
    table: u64,
}

impl Layout {
    pub(super) fn parse(head: &[u8], uuid: &[u8; 16]) -> Option<Self> {
        let sb = head.get(EXT4_AT..EXT4_AT + SUPERBLOCK)?;
        if le(sb, 0x38, 2) != 0xEF53 || sb.get(0x68..0x78)? != uuid {
            return None;
        }
        let shift = le(sb, 0x18, 4);
        let block = (shift <= 6).then(|| 1024_u64 << shift)?;
        let inode = usize::try_from(le(sb, 0x58, 2)).ok()?;
        if !inode.is_power_of_two() || !(128..=65536).contains(&inode) {
            return None;
        }
        let descriptor = usize::try_from(block.max(2048)).ok()?;
        let wide = le(sb, 0x60, 4) & 0x80 != 0 && le(sb, 0xFE, 2) >= 64;
        let high = if wide { le(head, descriptor + 0x28, 4) } else { 0 };
        let table = (le(head, descriptor + 0x08, 4) | high << 32).checked_mul(block)?;
        Some(Self {
            uuid: *uuid,
            inode,
            table,
        })
    }

    pub(super) fn foreign(&self, offset: u64, disk: &[u8], reference: &[u8]) -> Option<usize> {
        if disk == reference {
            return None;
        }
        (0..disk.len()).step_by(SECTOR).find_map(|at| {
            let end = (at + SECTOR).min(disk.len());
            let sector = &disk[at..end];
            let Some(same) = reference.get(at..end) else {
                return super::first(sector, 0).map(|first| at + first);
            };
            if sector == same || super::zero(sector) {
                return None;
            }
            let differs = |index: &usize| {
                sector[*index] != same[*index] && !self.varies(offset, at + index, disk, reference)
            };
            (0..sector.len()).find(differs).map(|index| at + index)
        })
    }

    /// Whether the byte at `at` of the piece belongs to a field that differs between runs.
    fn varies(&self, offset: u64, at: usize, disk: &[u8], reference: &[u8]) -> bool {
        let within =
            |ranges: &[Range<usize>], place: usize| ranges.iter().any(|range| range.contains(&place));
        let start = at - at % SUPERBLOCK;
        let both = disk
            .get(start..start + SUPERBLOCK)
            .zip(reference.get(start..start + SUPERBLOCK));
        if let Some((found, expected)) = both
            && self.is_superblock(expected)
            && self.is_superblock(found)
        {
            return within(&SUPERBLOCK_VARIES, at - start);
        }
        let place = offset + at as u64;
        let Some(inside) = place.checked_sub(self.table) else {
            return false;
        };
        let inode = self.inode as u64;
        let index = usize::try_from(inside % inode).unwrap_or_default();
        if inside / inode >= INODES {
            return false;
        }
        // mke2fs writes some inodes more than once, so an interrupted run may leave a version that
        // no finished reference has. The checksum of an inode covers the filesystem's UUID and the
        // number.
        let number = u32::try_from(inside / inode + 1).unwrap_or_default();
        let whole = at
            .checked_sub(index)
            .and_then(|start| disk.get(start..start + self.inode));
        within(&INODE_VARIES, index) || whole.is_some_and(|whole| self.is_own_inode(whole, number))
    }

    /// Whether the inode's checksum is valid (`ext4_inode_csum` in the kernel's `fs/ext4/inode.c`).
    fn is_own_inode(&self, inode: &[u8], number: u32) -> bool {
        let mut zeroed = inode.to_vec();
        let wide = zeroed.len() > 128;
        for field in [0x7C..0x7E, 0x82..0x84].into_iter().take(1 + usize::from(wide)) {
            if let Some(bytes) = zeroed.get_mut(field) {
                bytes.fill(0);
            }
        }
        let crc = crc32c(crc32c(!0, &self.uuid), &number.to_le_bytes());
        let crc = crc32c(crc, inode.get(0x64..0x68).unwrap_or_default());
        let crc = u64::from(crc32c(crc, &zeroed));
        // Without `i_extra_isize` only half of the checksum is stored. That is sufficient only if
        // the inode contains nothing else: mke2fs first writes reserved inodes this way.
        if le(inode, 0x80, 2) < 4 {
            return super::zero(&zeroed) && le(inode, 0x7C, 2) == crc & 0xFFFF;
        }
        wide && le(inode, 0x7C, 2) | le(inode, 0x82, 2) << 16 == crc
    }

    fn is_superblock(&self, bytes: &[u8]) -> bool {
        le(bytes, 0x38, 2) == 0xEF53 && bytes.get(0x68..0x78) == Some(&self.uuid)
    }
}
