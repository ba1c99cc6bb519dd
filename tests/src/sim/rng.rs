//! A small random number generator, part of this crate so that a seed means the same fleet with any
//! version of any dependency.

/// splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014). Not for
/// secrets.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A stream that depends on `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An independent stream for part number `index`.
    #[must_use]
    pub fn split(&self, index: u64) -> Self {
        let mut root = Self(self.0 ^ index.wrapping_add(1).wrapping_mul(0xd1b5_4a32_d192_ed03));
        Self(root.bits())
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.bits()) * (bound as u128);
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number in `[low, high)`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        low + unit * (high - low)
    }

    /// A UUID's 128 bits, marked as version 4 (RFC 9562, 5.4).
    pub fn uuid(&mut self) -> u128 {
        let bits = (u128::from(self.bits()) << 64) | u128::from(self.bits());
        let version = (bits & !(0xf << 76)) | (4 << 76);
        (version & !(0x3 << 62)) | (2 << 62)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_splitmix64() {
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn stays_within_bounds() {
        let mut random = Random::new(7);
        for _ in 0..1000 {
            assert!(random.below(3) < 3);
            assert!((2.0..5.0).contains(&random.between(2.0, 5.0)));
            let uuid = random.uuid();
            assert_eq!(((uuid >> 76) & 0xf, (uuid >> 62) & 0x3), (4, 2));
        }
        assert_eq!(random.below(0), 0);
    }
}
