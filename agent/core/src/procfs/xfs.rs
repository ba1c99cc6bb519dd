//! `/sys/fs/xfs/DEVICE/stats/stats` (kernel: `fs/xfs/xfs_stats.c`): one group of counters per line.

use super::{ParseError, words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group<'text> {
    /// Name, e.g. `extent_alloc`.
    pub name: &'text str,
    values: [u64; Group::MAX_COUNTERS],
    count: usize,
}

impl Group<'_> {
    /// Maximum number of counters in a group.
    const MAX_COUNTERS: usize = 16;

    /// Returns a counter by index, if the kernel prints it.
    pub fn get(&self, index: usize) -> Option<u64> {
        self.values[..self.count].get(index).copied()
    }
}

/// Parses the groups. Values after the 16th counter are ignored.
pub fn groups(text: &str) -> impl Iterator<Item = Result<Group<'_>, ParseError>> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let mut words = words(line);
        let mut group = Group {
            name: words.next()?,
            values: [0; Group::MAX_COUNTERS],
            count: 0,
        };
        for (value, word) in group.values.iter_mut().zip(words) {
            match word.parse() {
                Ok(number) => *value = number,
                Err(_) => return Some(Err(ParseError::at(index, "a counter", word))),
            }
            group.count += 1;
        }
        Some(Ok(group))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str =
        "extent_alloc 92447 97589 92448 93751\nabt 0 0 0 0\nxpc 399724544 92823103 86219234\ndebug 0\n";

    #[test]
    fn groups_and_counters() {
        let all: Vec<_> = groups(SAMPLE).collect::<Result<_, _>>().unwrap();
        assert_eq!((all.len(), all[0].name, all[2].name), (4, "extent_alloc", "xpc"));
        assert_eq!((all[0].get(3), all[0].get(4)), (Some(93_751), None));
        assert_eq!(all[0].get(99), None);
        let error = groups("abt 0\n\nrw 1 x")
            .collect::<Result<Vec<_>, _>>()
            .unwrap_err();
        assert_eq!((error.line, error.found.as_str()), (3, "x"));
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = groups(&text).count();
        }
    }
}
