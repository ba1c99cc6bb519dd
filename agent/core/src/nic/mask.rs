//! CPU sets in the format of sysfs (`xps_cpus`, `rps_cpus`: kernel `lib/bitmap-str.c`) and for
//! display.

/// Formats a CPU mask: 32-bit words in hexadecimal, highest first, separated by commas; `0` if
/// empty.
pub fn encode(cpus: &[u32]) -> String {
    let highest = cpus.iter().max().map_or(0, |cpu| cpu / 32);
    let word = |number: u32| {
        let bits = cpus.iter().filter(|cpu| *cpu / 32 == number);
        bits.fold(0u32, |word, cpu| word | 1 << (cpu % 32))
    };
    let first = format!("{:x}", word(highest));
    let others = (0..highest).rev().map(|number| format!("{:08x}", word(number)));
    let all: Vec<String> = std::iter::once(first).chain(others).collect();
    all.join(",")
}

/// Formats a CPU list for display: `0-2,5`, or `none`.
pub fn words(cpus: &[u32]) -> String {
    let mut sorted = cpus.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for cpu in sorted {
        match runs.last_mut() {
            Some(run) if run.1.checked_add(1) == Some(cpu) => run.1 = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    if runs.is_empty() {
        return "none".to_owned();
    }
    let shown = runs.iter().map(|&(first, last)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses a mask as the kernel does.
    fn decode(mask: &str) -> Vec<u32> {
        let words: Vec<u32> = mask
            .split(',')
            .map(|word| u32::from_str_radix(word, 16).unwrap())
            .collect();
        let mut cpus = Vec::new();
        for (number, word) in (0u32..).zip(words.iter().rev()) {
            cpus.extend(
                (0..32)
                    .filter(|bit| word >> bit & 1 == 1)
                    .map(|bit| number * 32 + bit),
            );
        }
        cpus
    }

    #[test]
    fn mask_has_32_bit_words_highest_first() {
        for (cpus, mask) in [
            (vec![], "0"),
            (vec![0], "1"),
            (vec![0, 1, 3], "b"),
            (vec![31], "80000000"),
            (vec![32], "1,00000000"),
            (vec![0, 33], "2,00000001"),
            (vec![64], "1,00000000,00000000"),
            (vec![5, 70, 100], "10,00000040,00000000,00000020"),
        ] {
            assert_eq!(encode(&cpus), mask, "{cpus:?}");
        }
    }

    #[test]
    fn runs_are_shown_as_ranges() {
        for (cpus, shown) in [
            (vec![], "none"),
            (vec![4], "4"),
            (vec![2, 0, 1, 5], "0-2,5"),
            (vec![u32::MAX, u32::MAX - 1], "4294967294-4294967295"),
        ] {
            assert_eq!(words(&cpus), shown);
        }
    }

    proptest! {
        #[test]
        fn mask_round_trips(cpus in proptest::collection::btree_set(0u32..512, 0..64)) {
            let cpus: Vec<u32> = cpus.into_iter().collect();
            prop_assert_eq!(decode(&encode(&cpus)), cpus);
        }
    }
}
