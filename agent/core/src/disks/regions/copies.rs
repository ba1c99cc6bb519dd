//! Positions of superblocks and their copies if a filesystem does not begin at the first byte of
//! the disk: after a lost partition table, after the header of a container, or in a file or device
//! that was attached with an offset.

use super::{ALIGN, GIB, KIB, MIB, TIB};

/// Usual offsets of a partition or of a container's payload. 1 MiB: the first partition (fdisk,
/// parted). 2 MiB: LUKS1. 4, 8, 16, 17 MiB: LUKS2, whose payload is at 16 MiB by default, or 1 MiB
/// later in a partition. 129 MiB: after Microsoft's reserved partition of 128 MiB.
const BASES: [u64; 7] = [MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 17 * MIB, 129 * MIB];
/// Bytes read at a base: superblocks of xfs and LUKS (0), LVM (512), ext (1 KiB), swap and md (4
/// KiB).
const FIRST_BYTES: u64 = 8 * KIB;
/// Bytes read for one copy. ext's copy is 1 KiB into a group with blocks of 1 KiB.
const COPY_BYTES: u64 = 4 * KIB;
/// `BTRFS_SUPER_INFO_OFFSET`.
const BTRFS_FIRST: u64 = 64 * KIB;
/// Size of a GPT backup: 32 sectors of entries and one for the header.
const GPT_BACKUP: u64 = 33 * 512;
/// Limits, in GiB, up to which multiples of 1, 16 and 256 GiB are read.
const MULTIPLES: [(u64, u64); 3] = [(1, 128), (16, 2 << 10), (256, 64 << 10)];

/// Returns positions of superblocks and their copies for each base, as offset and length, limited
/// to the disk.
pub(super) fn places(size: u64) -> Vec<(u64, u64)> {
    let mut places = Vec::new();
    for base in BASES.into_iter().filter(|base| *base < size) {
        first(base, &mut places);
        let mut copy = |offset: u64| places.push((base.saturating_add(offset), COPY_BYTES));
        for group in [KIB, 2 * KIB, 4 * KIB].map(|block| 8 * block * block) {
            ext(group, size - base, &mut copy);
        }
        [64 * MIB, 256 * GIB].into_iter().for_each(&mut copy);
        // The volume ends with the disk, before the backup of a GPT, or at the last whole MiB
        // before that.
        let behind = size.saturating_sub(GPT_BACKUP);
        for end in [size, behind, behind - behind % MIB] {
            xfs(end.saturating_sub(base), &mut copy);
        }
    }
    for base in multiples()
        .map(|number| number * GIB)
        .take_while(|base| *base < size)
    {
        first(base, &mut places);
        // A partition that follows one of a whole number of GiB at 1 MiB.
        first(base.saturating_add(MIB), &mut places);
        // ext's first copies with blocks of 4 KiB, and the first of btrfs.
        for offset in [64 * MIB, 128 * MIB, 384 * MIB] {
            places.push((base.saturating_add(offset), COPY_BYTES));
        }
    }
    places.retain(|(offset, _)| *offset < size);
    places
}

/// First superblocks.
fn first(base: u64, places: &mut Vec<(u64, u64)>) {
    places.push((base, FIRST_BYTES));
    places.push((base.saturating_add(BTRFS_FIRST), COPY_BYTES));
}

/// ext2, ext3, ext4 with groups of `group` bytes, in a volume of `size` bytes: `sparse_super` and
/// `sparse_super2`.
fn ext(group: u64, size: u64, copy: &mut impl FnMut(u64)) {
    copy(group);
    for base in [3_u64, 5, 7] {
        let mut number = base;
        while let Some(offset) = number.checked_mul(group).filter(|offset| *offset < size) {
            copy(offset);
            number *= base;
        }
    }
    copy(size.saturating_sub(1) / group * group);
}

/// First 15 allocation groups of an xfs of `size` bytes with the default layout of mkfs.xfs: four
/// equal ones, or groups of 1 TiB from 4 TiB on.
fn xfs(size: u64, copy: &mut impl FnMut(u64)) {
    let group = if size >= 4 * TIB {
        TIB
    } else {
        (size / ALIGN).div_ceil(4) * ALIGN
    };
    if group == 0 {
        return;
    }
    for offset in (1..=15).map_while(|number| group.checked_mul(number)) {
        if offset >= size {
            break;
        }
        copy(offset);
    }
}

fn multiples() -> impl Iterator<Item = u64> {
    let mut from = 0;
    MULTIPLES.into_iter().flat_map(move |(step, to)| {
        let begin = from + step;
        from = to;
        (begin..=to).step_by(usize::try_from(step).unwrap_or(usize::MAX))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_are_ascending_and_bounded() {
        let all: Vec<u64> = multiples().collect();
        assert!(all.is_sorted_by(|a, b| a < b));
        assert_eq!((all[0], all[127], all[128]), (1, 128, 144));
        assert_eq!(all.last(), Some(&(64 << 10)));
        assert_eq!(all.len(), 128 + 120 + 248);
    }

    #[test]
    fn the_number_of_places_is_bounded() {
        for (size, most) in [
            (GIB, 600),
            (100 * GIB, 1_500),
            (TIB, 2_200),
            (16 * TIB, 3_200),
            (u64::MAX, 5_500),
        ] {
            let count = places(size).len();
            assert!(count <= most, "{count} places in {size} bytes");
        }
    }

    #[test]
    fn filesystem_at_usual_offset_is_covered() {
        let size = 40 * GIB;
        let all = places(size);
        let met = |byte: u64| {
            all.iter()
                .any(|(offset, length)| (*offset..offset + length).contains(&byte))
        };
        for base in [MIB, 16 * MIB, 17 * MIB, 129 * MIB] {
            // ext4 with blocks of 1, 2 and 4 KiB: superblock, and copies in groups 1, 3 and 49.
            assert!(met(base + KIB + 56));
            for (block, begin) in [(KIB, KIB), (2 * KIB, 0), (4 * KIB, 0)] {
                for group in [1, 3, 49] {
                    assert!(
                        met(base + group * 8 * block * block + begin),
                        "{base} {block} {group}"
                    );
                }
            }
            assert!(met(base + 64 * KIB + 64) && met(base + 64 * MIB + 64));
            // xfs in a partition that ends before the backup of a GUID partition table.
            for end in [size, size - GPT_BACKUP, size - MIB] {
                let group = ((end - base) / ALIGN).div_ceil(4) * ALIGN;
                assert!(met(base + group) && met(base + 3 * group), "{base} {end}");
            }
        }
        for base in [GIB, GIB + MIB, 7 * GIB] {
            assert!(met(base + KIB + 56) && met(base + 64 * KIB + 64) && met(base + 4096 + 16));
        }
        assert!(met(3 * GIB + 128 * MIB) && met(3 * GIB + 64 * MIB));
    }
}
