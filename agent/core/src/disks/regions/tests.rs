use proptest::prelude::*;

use super::*;

fn read(regions: &[Region], byte: u64) -> bool {
    regions
        .iter()
        .any(|region| region.offset <= byte && byte - region.offset < region.length)
}

fn bytes(regions: &[Region]) -> u64 {
    regions.iter().map(|region| region.length).sum()
}

fn sound(size: u64, regions: &[Region]) -> Result<(), TestCaseError> {
    let mut end = None;
    for region in regions {
        prop_assert!(region.length > 0 && region.offset % ALIGN == 0);
        prop_assert!(
            end.is_none_or(|end| end < region.offset),
            "{region:?} is adjacent to its predecessor"
        );
        let last = region.offset.checked_add(region.length).unwrap();
        prop_assert!(last == size || last % ALIGN == 0);
        prop_assert!(last <= size);
        end = Some(last);
    }
    prop_assert!(read(regions, 0) && read(regions, size - 1));
    Ok(())
}

/// Sizes of any order of magnitude.
fn sizes() -> impl Strategy<Value = u64> {
    (9_u32..=63, any::<u64>()).prop_map(|(bits, noise)| {
        let size = (1 << bits) | (noise & ((1_u64 << bits) - 1));
        size & !511
    })
}

proptest! {
    #[test]
    fn regions_are_sorted_disjoint_aligned_and_cover_both_ends(size in sizes()) {
        for proof in [ProofKind::Sampled, ProofKind::Full] {
            sound(size, &regions(size, proof))?;
        }
    }

    #[test]
    fn sampled_proof_is_bounded_and_covers_both_ends(size in sizes()) {
        let regions = regions(size, ProofKind::Sampled);
        if size <= WHOLE_BYTES {
            prop_assert_eq!(bytes(&regions), size);
        } else {
            prop_assert!(bytes(&regions) <= 136 * MIB, "{} bytes", bytes(&regions));
            for byte in [0, END_BYTES - 1, size - END_BYTES, size - 1] {
                prop_assert!(read(&regions, byte), "byte {}", byte);
            }
        }
    }

    #[test]
    fn a_full_proof_reads_everything(size in sizes()) {
        prop_assert_eq!(bytes(&regions(size, ProofKind::Full)), size);
    }

    /// At most a stripe, 1/1024 of the disk, is between two samples.
    #[test]
    fn unread_runs_are_shorter_than_a_stripe(size in sizes()) {
        let regions = regions(size, ProofKind::Sampled);
        let stripe = size / SAMPLES + ALIGN;
        for pair in regions.windows(2) {
            let gap = pair[1].offset - pair[0].offset - pair[0].length;
            prop_assert!(gap <= stripe, "{} bytes unread", gap);
        }
    }
}

#[test]
fn bounds_hold_for_the_largest_disk() {
    let regions = regions(u64::MAX, ProofKind::Sampled);
    sound(u64::MAX, &regions).unwrap();
    assert!(bytes(&regions) <= 136 * MIB, "{}", bytes(&regions));
}

#[test]
fn amount_read_matches_the_documentation() {
    let mib = |size| bytes(&regions(size, ProofKind::Sampled)) / MIB;
    assert_eq!(
        [
            256 * MIB,
            257 * MIB,
            GIB,
            10 * GIB,
            100 * GIB,
            TIB,
            16 * TIB,
            1 << 60
        ]
        .map(mib),
        [256, 92, 96, 99, 104, 108, 115, 128]
    );
}

#[test]
fn every_copy_of_a_superblock_is_read() {
    for size in [
        300 * MIB,
        GIB + 512,
        10 * GIB,
        100 * GIB + 4096,
        3 * TIB + 512,
        40 * TIB,
    ] {
        let regions = regions(size, ProofKind::Sampled);
        let mut places = vec![64 * MIB, 256 * GIB, GIB, 4 * GIB, 16 * GIB];
        for (block, first) in [(1024, 1), (2048, 0), (4096, 0)] {
            for group in [1_u64, 3, 5, 7, 9, 25, 27, 49, 81, 125, 343, 2187] {
                places.push((first + group * 8 * block) * block);
            }
        }
        let blocks = size / 4096;
        for group in 1..4 {
            places.push(if size < 4 * TIB {
                blocks.div_ceil(4) * group * 4096
            } else {
                group * TIB
            });
        }
        for place in places.into_iter().filter(|place| place + 4096 <= size) {
            assert!(
                read(&regions, place) && read(&regions, place + 4095),
                "{place} of {size}"
            );
        }
    }
}

#[test]
fn empty_disk_has_no_regions() {
    assert_eq!(regions(0, ProofKind::Full), []);
    assert_eq!(regions(0, ProofKind::Sampled), []);
}
