//! Texts with one `key value` per line, such as `/proc/vmstat` (kernel: `mm/vmstat.c`).

use super::{ParseError, counter, words};

/// Parses the lines as `(key, value)`, and skips blank ones.
pub fn pairs(text: &str) -> impl Iterator<Item = Result<(&str, u64), ParseError>> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let mut words = words(line);
        let key = words.next()?;
        Some(counter(words.next(), index, "a counter after the name").map(|value| (key, value)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "nr_free_pages 5\npgfault 18446744073709551615\n";

    #[test]
    fn keys_and_values() {
        assert_eq!(
            pairs(SAMPLE).collect::<Result<Vec<_>, _>>().unwrap(),
            [("nr_free_pages", 5), ("pgfault", u64::MAX)]
        );
        assert_eq!(pairs("").count(), 0);
        assert_eq!(
            pairs("a 1\n\nb x")
                .collect::<Result<Vec<_>, _>>()
                .unwrap_err()
                .line,
            3
        );
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = pairs(&text).count();
        }
    }
}
