//! Lists of CPUs such as `0-3,8`, as sysfs prints them (kernel: `lib/vsprintf.c`, `%*pbl`).

use super::ParseError;

/// Numbers above this are taken for nonsense: the kernel's largest `NR_CPUS` is far below it.
const LARGEST: u32 = 65_535;

/// The CPUs of a list, in ascending order, each once. An empty text is an empty list.
pub fn cpus(text: &str) -> Result<Vec<u32>, ParseError> {
    let text = text.trim();
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let bad = || ParseError::at(0, "a list of CPUs such as 0-3,8", part);
        let number = |text: &str| text.parse().ok().filter(|n: &u32| *n <= LARGEST);
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first = number(first).ok_or_else(bad)?;
        let last = number(last).ok_or_else(bad)?;
        // A kernel prints each CPU once; without the limit, a text of overlapping ranges would grow without end.
        if first > last || cpus.len() as u64 > u64::from(LARGEST) {
            return Err(bad());
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
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
        assert!(cpus("\n").unwrap().is_empty());
        for text in ["3-1", "x", "1,", "0-4294967295", "1-2-3", "-1"] {
            assert!(cpus(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            prop_assert!(cpus(&text).is_ok_and(|cpus| cpus.iter().all(|cpu| *cpu <= LARGEST)) || cpus(&text).is_err());
        }
    }
}
