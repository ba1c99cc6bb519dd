//! `/proc/pressure/*` (kernel: `Documentation/accounting/psi.rst`).

use super::{ParseError, counter, words};

/// Time that tasks waited for a resource, since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Time in which at least one task waited, in microseconds; `None` if the line is missing
    /// (irq).
    pub some_us: Option<u64>,
    /// Time in which all tasks waited, in microseconds; `None` if the line is missing (cpu before
    /// 5.13).
    pub full_us: Option<u64>,
}

/// Parses the file of one resource, and passes malformed lines to `bad`.
pub fn pressure(text: &str, mut bad: impl FnMut(ParseError)) -> Pressure {
    let mut pressure = Pressure::default();
    for (index, line) in text.lines().enumerate() {
        let mut words = words(line);
        let slot = match words.next() {
            Some("some") => &mut pressure.some_us,
            Some("full") => &mut pressure.full_us,
            _ => continue,
        };
        let total = words.find_map(|word| word.strip_prefix("total="));
        *slot = counter(total, index, "total=MICROSECONDS").map_err(&mut bad).ok();
    }
    pressure
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::hostile::{self, with_bad},
        *,
    };

    const SAMPLE: &str = "some avg10=0.00 avg60=0.11 avg300=0.00 total=14036781\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";

    #[test]
    fn lines_by_kernel_and_resource() {
        let both = pressure(SAMPLE, |_| panic!());
        assert_eq!((both.some_us, both.full_us), (Some(14_036_781), Some(5)));
        assert_eq!(
            pressure("full avg10=0 total=7", |_| panic!()),
            Pressure {
                some_us: None,
                full_us: Some(7)
            }
        );
        assert_eq!(pressure("", |_| panic!()), Pressure::default());
        for (text, line, left) in [
            ("some avg10=0.00\nfull total=7", 1, (None, Some(7))),
            ("some total=1\nfull total=x", 2, (Some(1), None)),
        ] {
            let (found, bad) = with_bad(|bad| pressure(text, bad));
            assert_eq!(((found.some_us, found.full_us), bad), (left, vec![line]));
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            pressure(&text, |_| {});
        }
    }
}
