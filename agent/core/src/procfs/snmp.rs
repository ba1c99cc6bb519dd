//! `/proc/net/netstat`, `/proc/net/snmp` (kernel: `net/ipv4/proc.c`): a line of names and a line of
//! values per protocol; and `/proc/net/snmp6` (kernel: `net/ipv6/proc.c`): a name and a value per
//! line.

use super::{ParseError, integer, words};

/// Names and values of one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table<'text> {
    /// Index of the line with the values, from 0.
    pub line: usize,
    /// `PROTOCOL: NAME NAME …`, or one name that begins with its protocol, e.g. `Ip6InReceives`.
    pub names: &'text str,
    /// `PROTOCOL: VALUE VALUE …`, or one value.
    pub values: &'text str,
}

/// Parses the tables of `netstat` and `snmp`. A line that has no partner is an error on its own.
pub fn tables(text: &str) -> impl Iterator<Item = Result<Table<'_>, ParseError>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
    let mut lines = lines.peekable();
    std::iter::from_fn(move || {
        let (index, names) = lines.next()?;
        let protocol = first(names).filter(|word| word.ends_with(':'));
        let same = |values: &str| protocol.is_some() && protocol == first(values);
        let table = lines.next_if(|(_, values)| same(values));
        let table = table.map(|(line, values)| Table { line, names, values });
        Some(table.ok_or_else(|| ParseError::at(index, "names with values in the line below", names)))
    })
}

/// Parses the lines of `snmp6`, each as a table with one value. Like node_exporter, it skips lines
/// that are not a name and a value, and names without `6`.
pub fn lines6(text: &str) -> impl Iterator<Item = Table<'_>> {
    text.lines().enumerate().filter_map(|(line, whole)| {
        let mut words = words(whole);
        let (names, values) = (words.next()?, words.next()?);
        names.contains('6').then_some(Table { line, names, values })
    })
}

impl<'text> Table<'text> {
    /// Returns the names as `(protocol, name)`.
    pub fn fields(&self) -> impl Iterator<Item = (&'text str, &'text str)> {
        let mut names = words(self.names);
        let (protocol, single) = match names.next().unwrap_or_default() {
            head if head.ends_with(':') => (&head[..head.len() - 1], None),
            name => {
                let at = name.find('6').map_or(0, |at| at + 1);
                (&name[..at], Some(&name[at..]))
            }
        };
        single.into_iter().chain(names).map(move |name| (protocol, name))
    }

    /// Number of values.
    pub fn columns(&self) -> usize {
        words(self.values).count() - usize::from(self.values.contains(':'))
    }

    /// Parses the value of each field, which may be negative (`Tcp: MaxConn -1`).
    pub fn numbers(&self) -> impl Iterator<Item = Result<f64, ParseError>> {
        let line = self.line;
        let mut values = words(self.values);
        if self.values.contains(':') {
            values.next();
        }
        values.map(move |word| integer(word).ok_or_else(|| ParseError::at(line, "a number", word)))
    }
}

fn first(line: &str) -> Option<&str> {
    words(line).next()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "Tcp: MaxConn ActiveOpens\nTcp: -1 42\nIpExt: InOctets\nIpExt: 747903852\n";
    const SIX: &str =
        "Ip6InReceives                   \t2\nUdpLite6InDatagrams\t3\nnonsense 4\nIcmp6OutType143\t5\n";

    fn all(text: &str) -> Result<Vec<(String, f64)>, ParseError> {
        let mut found = Vec::new();
        for table in tables(text) {
            let table = table?;
            for ((protocol, name), number) in table.fields().zip(table.numbers()) {
                found.push((format!("{protocol}_{name}"), number?));
            }
        }
        Ok(found)
    }

    #[test]
    fn names_and_values() {
        let expected = [
            ("Tcp_MaxConn", -1.0),
            ("Tcp_ActiveOpens", 42.0),
            ("IpExt_InOctets", 747_903_852.0),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(all(SAMPLE).unwrap(), expected);
        let six: Vec<_> = lines6(SIX)
            .map(|table| {
                (
                    table.fields().next().unwrap(),
                    table.numbers().next().unwrap().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            six,
            [
                (("Ip6", "InReceives"), 2.0),
                (("UdpLite6", "InDatagrams"), 3.0),
                (("Icmp6", "OutType143"), 5.0)
            ]
        );
        assert_eq!(all("").unwrap(), []);
    }

    #[test]
    fn malformed_tables_are_reported() {
        for (text, line) in [
            ("Tcp: A\n", 1),
            ("Tcp: A\nUdp: 1\n", 1),
            ("Tcp A\nTcp 1\n", 1),
            ("noise\nTcp: A\nTcp: 1\n", 1),
            ("Tcp: A\n\nTcp: x\n", 3),
            ("A: B\nA: 1\nTcp: A\nTcp: x\n", 4),
        ] {
            assert_eq!(all(text).unwrap_err().line, line, "{text:?}");
        }
        let six = "Ip6InReceives 2\nIp6InOctets x\n";
        let error = lines6(six).find_map(|table| table.numbers().find_map(Result::err));
        assert_eq!(error.unwrap().line, 2);
        // The other tables are found, wherever a line is too much.
        for (text, found) in [
            ("noise\nTcp: A\nTcp: 1\nIp: B\nIp: 2\n", 2),
            ("Tcp: A\nnoise x\nTcp: 1\nIp: B\nIp: 2\n", 1),
            ("Tcp: A\nTcp: 1\nTcp: 3\nIp: B\nIp: 2\n", 2),
        ] {
            assert_eq!(tables(text).flatten().count(), found, "{text:?}");
            assert!(tables(text).flatten().all(|table| table.columns() == 1));
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE), six in hostile::text(SIX)) {
            all(&text).ok();
            for table in lines6(&six) {
                let _ = table.fields().zip(table.numbers()).count();
            }
        }
    }
}
