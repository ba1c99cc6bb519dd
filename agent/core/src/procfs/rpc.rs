//! `/proc/net/rpc/nfs` and `nfsd` (kernel: `net/sunrpc/stats.c`, `fs/nfsd/stats.c`): a name and
//! counters per line.

use super::{ParseError, counter, words};

/// Minimum numbers of counters on the lines of servers and clients.
const MIN_VALUES: [(&str, usize); 4] = [("rc", 3), ("io", 2), ("ra", 12), ("net", 4)];
/// Number of counters on the line `rpc` of a client.
pub const CLIENT_RPC: usize = 3;
/// Number of counters on the line `rpc` of a server.
pub const SERVER_RPC: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'text> {
    /// Name, e.g. `net`, `rpc`, `proc3`.
    pub name: &'text str,
    /// Counters; for `proc*` without the leading number of counters.
    pub values: Vec<u64>,
}

/// Parses the lines. The line `rpc` has so many counters, [`CLIENT_RPC`] or [`SERVER_RPC`]. For
/// `th`, only the first two numbers: the rest is an unused histogram.
///
/// # Errors
///
/// An item is an error if a counter is malformed, or if a `proc*` line has a wrong number of
/// counters.
pub fn lines(text: &str, rpc: usize) -> impl Iterator<Item = Result<Line<'_>, ParseError>> {
    text.lines().enumerate().map(move |(index, whole)| {
        let mut words = words(whole);
        let name = words.next().unwrap_or_default();
        let most = if name == "th" { 2 } else { usize::MAX };
        let mut values: Vec<u64> = words
            .take(most)
            .map(|word| counter(Some(word), index, "a counter"))
            .collect::<Result<_, _>>()?;
        let least = match name {
            "rpc" => rpc,
            _ => MIN_VALUES
                .iter()
                .find(|(line, _)| *line == name)
                .map_or(1, |(_, counters)| *counters),
        };
        if values.len() < least {
            return Err(ParseError::at(index, "a name and counters", whole));
        }
        if name.starts_with("proc") {
            let count = values.remove(0);
            if count != values.len() as u64 {
                return Err(ParseError::at(index, "as many counters as the line says", whole));
            }
        }
        Ok(Line { name, values })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str =
        "net 70 70 69 45\nth 8 0 0.000 0.000\nrpc 1218785755 374636 1218815394\nproc2 3 16 57 74\n";

    #[test]
    fn names_and_counters() {
        let all: Vec<_> = lines(SAMPLE, CLIENT_RPC).collect::<Result<_, _>>().unwrap();
        assert_eq!((all[0].name, &all[0].values[..]), ("net", &[70, 70, 69, 45][..]));
        assert_eq!((all[1].name, &all[1].values[..]), ("th", &[8, 0][..]));
        assert_eq!((all[3].name, &all[3].values[..]), ("proc2", &[16, 57, 74][..]));
        for text in [
            "net 70 70 69\n",
            "rc 1 2\n",
            "rpc 1 2\n",
            "\n",
            "net\n",
            "net x\n",
            "proc3 2 1\n",
            "proc3 1 1 1\n",
        ] {
            assert_eq!(
                lines(text, CLIENT_RPC).next().unwrap().unwrap_err().line,
                1,
                "{text:?}"
            );
        }
        for (text, whole) in [("rpc 9 2 0 1\n", false), ("rpc 9 2 0 1 1\n", true)] {
            assert_eq!(
                lines(text, SERVER_RPC).all(|line| line.is_ok()),
                whole,
                "{text:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = lines(&text, SERVER_RPC).count();
        }
    }
}
