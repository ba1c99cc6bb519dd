//! `/proc/net/sockstat` (kernel: `net/ipv4/proc.c`) and `sockstat6` (`net/ipv6/proc.c`).

use super::{ParseError, words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketProtocol<'text> {
    line: usize,
    /// Name, e.g. `TCP`, or `sockets` for the total.
    pub name: &'text str,
    rest: &'text str,
}

pub fn protocols(text: &str) -> impl Iterator<Item = Result<SocketProtocol<'_>, ParseError>> {
    text.lines().enumerate().map(|(line, whole)| {
        let (name, rest) = whole
            .split_once(':')
            .filter(|(_, rest)| !rest.trim().is_empty())
            .ok_or_else(|| ParseError::at(line, "PROTOCOL: KEY VALUE …", whole))?;
        Ok(SocketProtocol { line, name, rest })
    })
}

impl<'text> SocketProtocol<'text> {
    /// Parses its keys, e.g. `inuse`, and their values. Ends with a malformed one: it is unknown
    /// which of the words behind it are keys.
    pub fn pairs(&self) -> impl Iterator<Item = Result<(&'text str, i64), ParseError>> {
        let (line, mut words) = (self.line, words(self.rest));
        std::iter::from_fn(move || {
            let key = words.next()?;
            let word = words.next().unwrap_or_default();
            let value = word.parse().map(|value| (key, value)).map_err(|_| {
                words = super::words("");
                ParseError::at(line, "a number of sockets or pages", word)
            });
            Some(value)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str =
        "sockets: used 18\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 98\nFRAG6: inuse 0 memory 0\n";

    fn all(text: &str) -> Result<Vec<(&str, &str, i64)>, ParseError> {
        let mut found = Vec::new();
        for protocol in protocols(text) {
            let protocol = protocol?;
            for pair in protocol.pairs() {
                let (key, value) = pair?;
                found.push((protocol.name, key, value));
            }
        }
        Ok(found)
    }

    #[test]
    fn lines_of_pairs() {
        let found = all(SAMPLE).unwrap();
        assert_eq!(found.len(), 8);
        assert_eq!(
            (found[0], found[5]),
            (("sockets", "used", 18), ("TCP", "mem", 98))
        );
        for text in ["TCP inuse 1", "TCP:\n", "TCP: inuse", "TCP: inuse x"] {
            assert_eq!(all(text).unwrap_err().line, 1, "{text:?}");
        }
        let broken = protocols("TCP: inuse 1 orphan tw 3").next().unwrap().unwrap();
        let pairs: Vec<_> = broken.pairs().map(Result::ok).collect();
        assert_eq!(pairs, [Some(("inuse", 1)), None]);
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            all(&text).ok();
        }
    }
}
