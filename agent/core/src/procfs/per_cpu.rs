//! Files in `/proc/net/stat` (kernel: `net/core/neighbour.c`, `net/ipv4/route.c`,
//! `net/netfilter/nf_conntrack_standalone.c`): a line of names, and a line of hexadecimal counters
//! per possible CPU.

use super::{ParseError, hex, words};

/// Returns the names of the columns.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    words(text.lines().next().unwrap_or_default())
}

/// Parses the lines of the CPUs, with one counter per name.
///
/// # Errors
///
/// An item is an error if a counter is malformed, or if the line has not one counter per name.
pub fn rows(text: &str) -> impl Iterator<Item = Result<Vec<u64>, ParseError>> {
    let width = names(text).count();
    text.lines().enumerate().skip(1).map(move |(index, line)| {
        let row: Vec<u64> = words(line)
            .map(|word| hex(Some(word), index, "a hexadecimal counter"))
            .collect::<Result<_, _>>()?;
        if row.len() != width {
            return Err(ParseError::at(index, "a counter for each name", line));
        }
        Ok(row)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str =
        "entries  allocs destroys\n00000002  00000001 000000ff\n00000002  00000001 00000000\n";

    #[test]
    fn names_and_rows() {
        assert_eq!(
            names(SAMPLE).collect::<Vec<_>>(),
            ["entries", "allocs", "destroys"]
        );
        let all: Vec<_> = rows(SAMPLE).collect::<Result<_, _>>().unwrap();
        assert_eq!(all, [[2, 1, 255], [2, 1, 0]]);
        assert_eq!(rows("").count(), 0);
        assert_eq!(rows("a b\n1").next().unwrap().unwrap_err().line, 2);
        assert_eq!(rows("a b\n1 2\n1 x").nth(1).unwrap().unwrap_err().line, 3);
        // Another line in the place of the names must not name the counters.
        assert!(rows("a\n1 2").next().unwrap().is_err());
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = rows(&text).count();
        }
    }
}
