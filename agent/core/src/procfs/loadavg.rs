//! `/proc/loadavg` (kernel: `fs/proc/loadavg.c`).

use super::{ParseError, words};

/// Parses the load averages over 1, 5 and 15 minutes.
///
/// # Errors
///
/// A value is missing or malformed.
pub fn loads(text: &str) -> Result<[f64; 3], ParseError> {
    let mut words = words(text);
    let mut loads = [0.0; 3];
    for load in &mut loads {
        let word = words.next().unwrap_or_default();
        *load = word
            .parse()
            .ok()
            .filter(|load: &f64| load.is_finite())
            .ok_or_else(|| ParseError::at(0, "three load averages", word))?;
    }
    Ok(loads)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "0.20 4.18 10.01 2/1034 4242\n";

    #[test]
    fn three_loads_or_an_error() {
        assert!(
            loads(SAMPLE)
                .unwrap()
                .iter()
                .zip([0.2, 4.18, 10.01])
                .all(|(a, b)| (a - b).abs() < 1e-9)
        );
        for text in ["", "0.1 0.2", "0.1 x 0.3", "0.1 inf 0.3", "\0"] {
            assert!(loads(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            prop_assert!(loads(&text).map_or(true, |loads| loads.iter().all(|load| load.is_finite())));
        }
    }
}
