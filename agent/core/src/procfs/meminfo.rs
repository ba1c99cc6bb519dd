//! `/proc/meminfo` (kernel: `fs/proc/meminfo.c`, `mm/hugetlb.c`).

use super::{ParseError, counter, words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'text> {
    /// Name, e.g. `MemTotal` or `Active(anon)`.
    pub name: &'text str,
    /// Value, in bytes or as printed.
    pub value: u64,
    /// Whether the kernel prints `kB` and the value is in bytes; otherwise it is a plain number,
    /// e.g. of huge pages.
    pub in_bytes: bool,
}

/// Parses the lines, and skips blank ones.
pub fn fields(text: &str) -> impl Iterator<Item = Result<Field<'_>, ParseError>> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| field(index, line))
}

fn field(index: usize, line: &str) -> Result<Field<'_>, ParseError> {
    let (name, rest) = line
        .split_once(':')
        .ok_or_else(|| ParseError::at(index, "NAME: VALUE", line))?;
    let mut words = words(rest);
    let value = counter(words.next(), index, "a number")?;
    let (value, in_bytes) = match words.next() {
        None => (value, false),
        Some("kB") => (value.saturating_mul(1024), true),
        Some(unit) => return Err(ParseError::at(index, "kB or no unit", unit)),
    };
    Ok(Field {
        name,
        value,
        in_bytes,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "MemTotal:       16384 kB\nActive(anon):     12 kB\nHugePages_Total:       3\nHugepagesize:       2048 kB\n";

    #[test]
    fn units() {
        let all: Vec<_> = fields(SAMPLE).collect::<Result<_, _>>().unwrap();
        assert_eq!(
            all[0],
            Field {
                name: "MemTotal",
                value: 16 << 20,
                in_bytes: true
            }
        );
        assert_eq!(all[1].name, "Active(anon)");
        assert_eq!((all[2].value, all[2].in_bytes), (3, false));
        assert_eq!(fields("").count(), 0);
    }

    #[test]
    fn malformed_lines_are_reported() {
        for (text, line) in [
            ("MemTotal", 1),
            ("A: 1 kB\nB: x kB", 2),
            ("A: 1 MB", 1),
            ("MemTot\0al 1", 1),
        ] {
            let error = fields(text).collect::<Result<Vec<_>, _>>().unwrap_err();
            assert_eq!(error.line, line, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = fields(&text).count();
        }
    }
}
