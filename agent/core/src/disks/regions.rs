//! Regions of a disk that must be read before the disk counts as blank.

mod copies;
mod order;
mod sizes;

use sizes::{ALIGN, GIB, KIB, MIB, TIB};
use virtfleet_wire::settings::ProofKind;

pub use self::order::{BLOCK_BYTES, blocks};
use super::probe::Region;

/// Maximum size of a disk that is always read completely, in bytes.
pub const WHOLE_BYTES: u64 = 256 * MIB;
/// Number of bytes read at each end. This covers the superblocks of all formats at the front, and
/// those of GPT, MD, DDF, ZFS, nilfs2, DRBD and bcachefs at the end.
pub const END_BYTES: u64 = 16 * MIB;
/// Number of bytes read at each position of a superblock copy, and at each sample.
pub const PIECE_BYTES: u64 = 64 * KIB;
/// Number of samples, evenly distributed over the disk.
pub const SAMPLES: u64 = 1024;

/// Returns the regions that every proof reads on a disk of `size` bytes: sorted, with gaps between
/// them, each aligned to 4096 except at the end of the disk. At most 136 MiB with
/// [`ProofKind::Timed`] and [`ProofKind::Sampled`], the whole disk with [`ProofKind::Full`].
pub fn regions(size: u64, proof: ProofKind) -> Vec<Region> {
    if size == 0 {
        return Vec::new();
    }
    if proof == ProofKind::Full || size <= WHOLE_BYTES {
        return vec![Region {
            offset: 0,
            length: size,
        }];
    }
    let mut parts = vec![part(0, END_BYTES, size), part(size - END_BYTES, END_BYTES, size)];
    let pieces = superblocks(size).into_iter().chain(samples(size));
    parts.extend(pieces.map(|offset| part(offset, PIECE_BYTES, size)));
    let copies = copies::places(size).into_iter();
    parts.extend(copies.map(|(offset, length)| part(offset, length, size)));
    merged(parts)
}

/// Whether a byte is in one of the regions.
pub fn holds(regions: &[Region], byte: u64) -> bool {
    regions
        .iter()
        .any(|region| region.offset <= byte && byte - region.offset < region.length)
}

/// Longest run of bytes of a disk of `size` bytes that is in none of the sorted, disjoint regions.
pub fn largest_unread(size: u64, regions: &[Region]) -> u64 {
    let mut largest = 0;
    let mut end = 0;
    for region in regions {
        largest = largest.max(region.offset.saturating_sub(end));
        end = end.max(region.offset.saturating_add(region.length));
    }
    largest.max(size.saturating_sub(end))
}

/// The range `[offset, offset + length)`, widened to the alignment and cut at the end of the disk.
fn part(offset: u64, length: u64, size: u64) -> Region {
    let start = offset - offset % ALIGN;
    let end = offset
        .saturating_add(length)
        .checked_next_multiple_of(ALIGN)
        .unwrap_or(size)
        .min(size);
    Region {
        offset: start,
        length: end - start,
    }
}

/// Merges overlapping and adjacent regions, and sorts them.
pub fn merged(mut parts: Vec<Region>) -> Vec<Region> {
    parts.sort_unstable();
    let mut all: Vec<Region> = Vec::with_capacity(parts.len());
    for part in parts {
        match all.last_mut() {
            Some(last) if part.offset <= last.offset + last.length => {
                let end = (part.offset + part.length).max(last.offset + last.length);
                last.length = end - last.offset;
            }
            _ => all.push(part),
        }
    }
    all
}

/// Positions of superblock copies on the disk after the first 16 MiB. A copy is within 64 KiB of
/// its position.
fn superblocks(size: u64) -> Vec<u64> {
    let mut places = Vec::new();
    // ext2, ext3, ext4: `sparse_super` stores copies in group 1 and in the groups with powers of 3,
    // 5 and 7; a group has eight times as many blocks as a block has bytes. With blocks of 1 KiB
    // the group begins one block later, within the same 64 KiB.
    for block in [KIB, 2 * KIB, 4 * KIB] {
        let group = 8 * block * block;
        places.push(group);
        for base in [3_u64, 5, 7] {
            let mut number = base;
            while let Some(offset) = number.checked_mul(group).filter(|offset| *offset < size) {
                places.push(offset);
                number *= base;
            }
        }
        // `sparse_super2`: in the last group.
        places.push((size - 1) / group * group);
    }
    // btrfs: BTRFS_SUPER_MIRROR_SHIFT.
    places.extend([64 * MIB, 256 * GIB]);
    // ocfs2: OCFS2_BACKUP_SB_START and its multiples by four.
    places.extend([GIB, 4 * GIB, 16 * GIB, 64 * GIB, 256 * GIB, TIB]);
    // xfs: each allocation group begins with a copy. By default there are four equal groups, sized
    // in blocks of 4 KiB, or as many of 1 TiB as fit, of which 15 are read.
    let quarter = (size / ALIGN).div_ceil(4) * ALIGN;
    for number in 1..=15 {
        let group = if size >= 4 * TIB { TIB } else { quarter };
        places.push(group.saturating_mul(number));
    }
    places.retain(|place| *place < size);
    places
}

/// Offsets of the samples: one in the middle of each of `SAMPLES` equal stripes.
fn samples(size: u64) -> impl Iterator<Item = u64> {
    let (size, count) = (u128::from(size), u128::from(SAMPLES));
    (0..count).filter_map(move |number| {
        let middle = size * (2 * number + 1) / (2 * count);
        u64::try_from(middle - u128::from(PIECE_BYTES) / 2).ok()
    })
}

#[cfg(test)]
mod tests;
