//! Fingerprint of an image before its erasure: its non-zero blocks, with a digest of each.
//!
//! The agent resumes an interrupted erasure only if every block is zero or has its recorded digest.
//! So any byte written in between is detected, in whatever order the device wrote the zeros.

use sha2::{Digest as _, Sha256};

use super::source::is_zero;

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// Bytes of a digest, a truncated SHA-256. Two given blocks collide with probability 2^-64.
const DIGEST: usize = 8;
/// Maximum number of recorded non-zero blocks: 32 GiB of data, 64 MiB of digests.
const MAX_BLOCKS: usize = 8 << 20;

/// Digests of the non-zero blocks of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fingerprint {
    /// Bitmap of the non-zero blocks.
    used: Vec<u8>,
    blocks: usize,
    /// Number of non-zero blocks before each group of 256 blocks.
    before: Vec<usize>,
    digests: Vec<[u8; DIGEST]>,
}

/// Block that is neither zero nor as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    /// Offset of the block in bytes.
    pub offset: u64,
}

impl Fingerprint {
    /// Adds the next bytes: whole blocks, except at the end.
    ///
    /// # Errors
    ///
    /// More than 32 GiB are not zero.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        for block in bytes.chunks(BLOCK) {
            if self.blocks.is_multiple_of(256) {
                self.before.push(self.digests.len());
            }
            if self.blocks.is_multiple_of(8) {
                self.used.push(0);
            }
            if !is_zero(block) {
                if let Some(last) = self.used.last_mut() {
                    *last |= 1 << (self.blocks % 8);
                }
                self.digests.push(digest(block));
            }
            self.blocks += 1;
        }
        if self.digests.len() > MAX_BLOCKS {
            return Err(
                "the image has more than 32 GiB of data, the maximum that can be recorded".to_owned(),
            );
        }
        Ok(())
    }

    /// Bytes in non-zero blocks.
    pub fn used_bytes(&self) -> u64 {
        (self.digests.len() * BLOCK) as u64
    }

    /// Covered bytes, rounded up to whole blocks.
    pub fn bytes(&self) -> u64 {
        (self.blocks * BLOCK) as u64
    }

    /// Checks that each block of `bytes`, which begin at `offset` (a multiple of [`BLOCK`]), is
    /// zero or as recorded. Returns the number of bytes in non-zero blocks.
    ///
    /// # Errors
    ///
    /// The first block that is neither zero nor as recorded.
    pub fn check(&self, offset: u64, bytes: &[u8]) -> Result<u64, Foreign> {
        let first = usize::try_from(offset / BLOCK as u64).unwrap_or(usize::MAX);
        let mut left = 0;
        for (index, block) in bytes.chunks(BLOCK).enumerate() {
            if is_zero(block) {
                continue;
            }
            if self.recorded(first.saturating_add(index)) != Some(digest(block)) {
                return Err(Foreign {
                    offset: offset + (index * BLOCK) as u64,
                });
            }
            left += block.len() as u64;
        }
        Ok(left)
    }

    fn recorded(&self, block: usize) -> Option<[u8; DIGEST]> {
        let bit = |block: usize| {
            self.used
                .get(block / 8)
                .is_some_and(|byte| byte & (1 << (block % 8)) != 0)
        };
        if block >= self.blocks || !bit(block) {
            return None;
        }
        let group = block / 256;
        let within = (group * 256..block).filter(|block| bit(*block)).count();
        self.digests.get(self.before.get(group)? + within).copied()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = (self.blocks as u64).to_le_bytes().to_vec();
        bytes.extend(&self.used);
        bytes.extend(self.digests.iter().flatten());
        let sum = Sha256::digest(&bytes);
        bytes.extend(sum);
        bytes
    }

    /// Parses the output of [`Self::encode`]; `None` if it is incomplete.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes, sum) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
        if Sha256::digest(bytes).as_slice() != sum {
            return None;
        }
        let (count, rest) = bytes.split_at_checked(8)?;
        let blocks = usize::try_from(u64::from_le_bytes(count.try_into().ok()?)).ok()?;
        let (used, digests) = rest.split_at_checked(blocks.div_ceil(8))?;
        let mut before = Vec::with_capacity(blocks.div_ceil(256));
        let mut count = 0;
        for group in used.chunks(32) {
            before.push(count);
            count += group.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
        }
        if digests.len() != count * DIGEST {
            return None;
        }
        Some(Self {
            used: used.to_vec(),
            blocks,
            before,
            digests: digests
                .chunks_exact(DIGEST)
                .filter_map(|one| one.try_into().ok())
                .collect(),
        })
    }
}

fn digest(block: &[u8]) -> [u8; DIGEST] {
    let mut short = [0; DIGEST];
    short.copy_from_slice(&Sha256::digest(block)[..DIGEST]);
    short
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn image(seed: &[u8], blocks: usize) -> Vec<u8> {
        let mut bytes = vec![0; blocks * BLOCK];
        for (index, byte) in seed.iter().enumerate() {
            bytes[(index * 7919) % (blocks * BLOCK)] = *byte;
        }
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
        #[test]
        fn only_recorded_or_zero_blocks_pass(
            seed in proptest::collection::vec(any::<u8>(), 0..100),
            erased in proptest::collection::vec(0_usize..300, 0..30),
            change in (0_usize..300 * BLOCK, 1_u8..),
        ) {
            let original = image(&seed, 300);
            let mut print = Fingerprint::default();
            for chunk in original.chunks(256 * BLOCK) {
                print.push(chunk).unwrap();
            }
            let print = Fingerprint::decode(&print.encode()).unwrap();
            let mut now = original.clone();
            for block in erased {
                now[block * BLOCK..][..BLOCK].fill(0);
            }
            prop_assert_eq!(print.check(0, &original), Ok(print.used_bytes()));
            prop_assert!(print.check(0, &now).is_ok());
            let at = 256 * BLOCK;
            prop_assert!(print.check(at as u64, &now[at..]).is_ok());
            let (place, with) = change;
            now[place] ^= with;
            let block = place / BLOCK * BLOCK;
            let back = now[block..][..BLOCK] == original[block..][..BLOCK];
            let zero = now[block..][..BLOCK].iter().all(|byte| *byte == 0);
            if !back && !zero {
                prop_assert_eq!(print.check(0, &now), Err(Foreign { offset: block as u64 }));
            }
        }
    }

    #[test]
    fn damaged_records_are_rejected() {
        let mut print = Fingerprint::default();
        print.push(&image(&[7; 40], 20)).unwrap();
        let bytes = print.encode();
        assert_eq!(Fingerprint::decode(&bytes), Some(print));
        for at in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Fingerprint::decode(&damaged), None, "{at}");
            assert_eq!(Fingerprint::decode(&bytes[..at]), None);
        }
    }
}
