//! Parsers for procfs, sysfs and udev texts. They return borrowed values, allocate little, and
//! never panic on any input.
//!
//! They support kernels from 4.x on: columns of later kernels are optional, and further columns at
//! the end of a line are ignored. Where the file or its other lines tell the number of columns (a
//! heading, as in `snmp` and `/proc/net/stat`, or `softnet_stat`), another number is an error. A
//! malformed number is an error with its line, never 0.

pub mod buddyinfo;
pub mod cgroups;
pub mod cpuinfo;
pub mod cpulist;
pub mod diskstats;
pub mod hwmon;
pub mod interrupts;
pub mod ipvs;
pub mod kstat;
pub mod loadavg;
pub mod mdstat;
pub mod meminfo;
pub mod mountinfo;
pub mod mountstats;
pub mod net_dev;
pub mod os_release;
pub mod pairs;
pub mod per_cpu;
pub mod pressure;
pub mod rpc;
pub mod schedstat;
pub mod single;
pub mod slabinfo;
pub mod snmp;
pub mod sockets;
pub mod sockstat;
pub mod softnet;
pub mod stat;
pub mod swaps;
pub mod task_stat;
pub mod udev;
pub mod vulnerability;
pub mod xfs;
pub mod zoneinfo;

/// Malformed text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}, found {found:?}")]
pub struct ParseError {
    /// Line number from 1.
    pub line: usize,
    pub expected: &'static str,
    /// Found text, at most 40 characters.
    pub found: String,
}

impl ParseError {
    /// Returns the error for `found` in the line with this index, from 0.
    fn at(index: usize, expected: &'static str, found: &str) -> Self {
        Self {
            line: index + 1,
            expected,
            found: found.chars().take(40).collect(),
        }
    }
}

/// Splits a line into words: procfs separates them by spaces and tabs.
fn words(line: &str) -> std::str::SplitAsciiWhitespace<'_> {
    line.split_ascii_whitespace()
}

/// Parses the next word as a counter.
fn counter(word: Option<&str>, index: usize, expected: &'static str) -> Result<u64, ParseError> {
    let word = word.unwrap_or_default();
    word.parse().map_err(|_| ParseError::at(index, expected, word))
}

/// Parses an integer that may be signed, or larger than a signed one of 64 bits.
fn integer(word: &str) -> Option<f64> {
    let unsigned = word.parse::<u64>().ok().map(|value| value as f64);
    unsigned.or_else(|| word.parse::<i64>().ok().map(|value| value as f64))
}

/// Parses the next word as a hexadecimal number.
fn hex(word: Option<&str>, index: usize, expected: &'static str) -> Result<u64, ParseError> {
    let word = word.unwrap_or_default();
    let bad = || ParseError::at(index, expected, word);
    // The kernel prints no sign.
    if word.starts_with('+') {
        return Err(bad());
    }
    u64::from_str_radix(word, 16).map_err(|_| bad())
}

#[cfg(test)]
mod hostile {
    use proptest::prelude::*;

    use super::ParseError;

    /// Calls a parser that passes malformed lines on; returns its result and their numbers.
    pub(super) fn with_bad<T>(parse: impl FnOnce(&mut dyn FnMut(ParseError)) -> T) -> (T, Vec<usize>) {
        let mut lines = Vec::new();
        let found = parse(&mut |error| lines.push(error.line));
        (found, lines)
    }

    /// Inputs that a parser must survive: noise, and `sample` truncated, with inserted noise or a
    /// removed range.
    pub(super) fn text(sample: &'static str) -> impl Strategy<Value = String> {
        let bytes = proptest::collection::vec(any::<u8>(), 0..200);
        let mutated = (any::<prop::sample::Index>(), 0..40_usize, "[ -~\t\n\0é]{0,12}").prop_map(
            move |(at, cut, noise)| {
                let at = at.index(sample.len() + 1);
                let rest = sample.as_bytes().get(at + cut..).unwrap_or_default();
                let all = [&sample.as_bytes()[..at], noise.as_bytes(), rest].concat();
                String::from_utf8_lossy(&all).into_owned()
            },
        );
        prop_oneof![
            bytes.prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            mutated,
        ]
    }
}
