//! Files with one number, such as most of sysfs and `/proc/sys` (kernel: `fs/proc/proc_sysctl.c`,
//! `fs/sysfs/file.c`).

use super::ParseError;

/// Parses an unsigned number.
///
/// # Errors
///
/// The text is not one number.
pub fn unsigned(text: &str) -> Result<u64, ParseError> {
    let word = text.trim();
    word.parse().map_err(|_| ParseError::at(0, "one number", word))
}

/// Parses a signed number.
///
/// # Errors
///
/// The text is not one number.
pub fn signed(text: &str) -> Result<i64, ParseError> {
    let word = text.trim();
    word.parse().map_err(|_| ParseError::at(0, "one number", word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    #[test]
    fn numbers() {
        assert_eq!(unsigned("18446744073709551615\n"), Ok(u64::MAX));
        assert_eq!(signed("-3\n"), Ok(-3));
        for text in ["", "\n", "1 2", "0x1", "18446744073709551616"] {
            assert!(unsigned(text).is_err() && signed(text).is_err(), "{text:?}");
        }
        assert!(unsigned("-1").is_err());
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text("12345\n")) {
            unsigned(&text).ok();
            signed(&text).ok();
        }
    }
}
