//! CPU sets in the formats of sysfs: lists such as `0-3,8` and masks such as `f,00000001` (kernel:
//! `lib/vsprintf.c`, `%*pbl` and `%*pb`).

use super::ParseError;

/// Maximum valid CPU number: the kernel's largest `NR_CPUS` is far below it.
const MAX_CPU: u32 = 65_535;

/// Parses a list: CPUs in ascending order without duplicates; empty for an empty text. Block
/// devices print spaces, too: `0, 1` (kernel: `block/blk-mq-sysfs.c`).
///
/// # Errors
///
/// The text is not a list of CPUs.
pub fn cpus(text: &str) -> Result<Vec<u32>, ParseError> {
    let text = text.trim();
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let bad = || ParseError::at(0, "a list of CPUs such as 0-3,8", part);
        let part = part.trim();
        let number = |text: &str| text.parse().ok().filter(|n: &u32| *n <= MAX_CPU);
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first = number(first).ok_or_else(bad)?;
        let last = number(last).ok_or_else(bad)?;
        // A kernel prints each CPU once. The limit bounds the result for overlapping ranges.
        if first > last || cpus.len() as u64 > u64::from(MAX_CPU) {
            return Err(bad());
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// Parses a mask: 32-bit hexadecimal words, highest first, separated by commas. Returns CPUs in
/// ascending order.
///
/// # Errors
///
/// The text is not a mask of CPUs.
pub fn mask(text: &str) -> Result<Vec<u32>, ParseError> {
    let mut cpus = Vec::new();
    for (place, word) in (0_u32..).zip(text.trim().rsplit(',')) {
        let bad = || ParseError::at(0, "a mask of CPUs such as 3 or f,00000001", word);
        let digits = word.len() <= 8 && !word.starts_with('+');
        let bits = u32::from_str_radix(word, 16).ok().filter(|_| digits);
        let bits = bits.ok_or_else(bad)?;
        let set = (0..u32::BITS).filter(|bit| bits >> bit & 1 == 1);
        let first = place.checked_mul(u32::BITS).filter(|first| *first <= MAX_CPU);
        let first = first.ok_or_else(bad)?;
        cpus.extend(set.map(|bit| first + bit));
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "0-3,8,10-11\n";

    #[test]
    fn lists() {
        assert_eq!(cpus(SAMPLE).unwrap(), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(cpus("0").unwrap(), [0]);
        assert_eq!(cpus("4,1-2,2").unwrap(), [1, 2, 4]);
        assert_eq!(cpus("0, 1, 17\n").unwrap(), [0, 1, 17]);
        assert!(cpus("\n").unwrap().is_empty());
        for text in ["3-1", "x", "1,", "0-4294967295", "1-2-3", "-1"] {
            assert!(cpus(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn masks() {
        assert_eq!(mask("3\n").unwrap(), [0, 1]);
        assert!(mask("0").unwrap().is_empty());
        assert!(mask("00000000,00000000\n").unwrap().is_empty());
        assert_eq!(mask("80000001,00000000,00000010").unwrap(), [4, 64, 95]);
        for text in ["", ",", "3,", "g", "+1", "123456789", "-1", "1 2"] {
            assert!(mask(text).is_err(), "{text:?}");
        }
        assert!(mask(&"0,".repeat(3000)).is_err());
    }

    proptest! {
        #[test]
        fn no_mask_panics(text in "[0-9a-fA-F,+ ]{0,200}|\\PC{0,40}") {
            if let Ok(cpus) = mask(&text) {
                prop_assert!(cpus.is_sorted() && cpus.last().is_none_or(|last| *last < MAX_CPU + 32));
            }
        }
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            prop_assert!(cpus(&text).is_ok_and(|cpus| cpus.iter().all(|cpu| *cpu <= MAX_CPU)) || cpus(&text).is_err());
        }
    }
}
