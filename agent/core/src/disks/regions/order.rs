//! Order in which a timed proof reads the rest of a disk: from both ends inwards, and evenly
//! between.

use super::{super::probe::Region, GIB, MIB};

/// Bytes of one read.
pub const BLOCK_BYTES: u64 = 4 * MIB;
/// Fraction (1/n) of the disk that is read inwards from each end.
const END_FRACTION: u64 = 16;
/// Maximum number of bytes that are read inwards from each end. Data that someone has begun to
/// write or to wipe is there; a larger limit would leave long unread runs between the ends.
const MAX_END_BYTES: u64 = 4 * GIB;

/// Returns every block of a disk of `size` bytes once: alternately from the front, evenly, from the
/// back, evenly. The order depends only on the size. Wherever reading stops, the blocks read so far
/// are evenly distributed: the middle is visited in bit-reversed order (van der Corput's sequence).
pub fn blocks(size: u64) -> impl Iterator<Item = Region> {
    let count = size.div_ceil(BLOCK_BYTES);
    let ends = (count / END_FRACTION).min(MAX_END_BYTES / BLOCK_BYTES);
    let mut front = 0..ends;
    let mut back = (count - ends..count).rev();
    let mut middle = reversed(count - 2 * ends).map(move |index| ends + index);
    let mut turn = 0_u8;
    let next = move || {
        for _ in 0..4 {
            turn = (turn + 1) % 4;
            let index = match turn {
                1 => front.next(),
                3 => back.next(),
                _ => middle.next(),
            };
            if index.is_some() {
                return index;
            }
        }
        None
    };
    std::iter::from_fn(next).map(move |index| {
        let offset = index * BLOCK_BYTES;
        Region {
            offset,
            length: BLOCK_BYTES.min(size - offset),
        }
    })
}

/// Returns the numbers below `count` in bit-reversed order.
fn reversed(count: u64) -> impl Iterator<Item = u64> {
    let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
    let all = if count == 0 { 0 } else { 1_u64 << bits };
    (0..all)
        .map(move |number| {
            if bits == 0 {
                0
            } else {
                number.reverse_bits() >> (u64::BITS - bits)
            }
        })
        .filter(move |index| *index < count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::regions::{largest_unread, merged};

    #[test]
    fn every_block_is_read_once() {
        for size in [
            1,
            512,
            BLOCK_BYTES,
            BLOCK_BYTES + 512,
            257 * MIB,
            5 * GIB + 4096,
            300 * GIB,
        ] {
            let mut all: Vec<Region> = blocks(size).collect();
            assert_eq!(all.iter().map(|block| block.length).sum::<u64>(), size);
            all.sort_unstable();
            assert!(
                all.windows(2)
                    .all(|pair| pair[0].offset + pair[0].length == pair[1].offset),
                "{size}"
            );
        }
        assert_eq!(blocks(0).count(), 0);
    }

    #[test]
    fn unread_runs_are_short_at_any_time() {
        let size = 100 * GIB;
        for read in [64, 1000, 5000, 20_000] {
            let some = merged(blocks(size).take(read).collect());
            // Half of the blocks are evenly distributed between the ends, within a factor of two.
            // The ends, which may be unread until then, are adjacent.
            let end = MAX_END_BYTES.min(size / END_FRACTION);
            let even = (size - 2 * end) / (read as u64 / 2 + 1) * 2 + BLOCK_BYTES;
            let ends_left = end.saturating_sub(read as u64 / 4 * BLOCK_BYTES);
            let longest = largest_unread(size, &some);
            assert!(longest <= even + ends_left, "{read} blocks leave {longest}");
        }
    }

    #[test]
    fn largest_disk_is_supported() {
        assert_eq!(blocks(u64::MAX).take(1000).count(), 1000);
    }
}
