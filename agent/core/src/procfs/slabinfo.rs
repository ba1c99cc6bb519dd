//! `/proc/slabinfo` version 2.1: slab caches (kernel: `mm/slab_common.c`, `cache_show`).

use super::{ParseError, counter, words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slab<'text> {
    pub name: &'text str,
    /// Active objects, all objects, object size in bytes, objects per slab, pages per slab.
    pub values: [u64; Slab::COLUMNS],
}

impl Slab<'_> {
    /// Number of values of a cache.
    pub const COLUMNS: usize = 5;
}

/// Parses the caches, and skips the two heading lines.
pub fn slabs(text: &str) -> impl Iterator<Item = Result<Slab<'_>, ParseError>> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with("slabinfo - ") && !line.starts_with('#'))
        .filter_map(|(index, line)| {
            let mut words = words(line);
            let name = words.next()?;
            let mut values = [0; Slab::COLUMNS];
            for value in &mut values {
                match counter(words.next(), index, "5 numbers of a cache") {
                    Ok(number) => *value = number,
                    Err(error) => return Some(Err(error)),
                }
            }
            Some(Ok(Slab { name, values }))
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "slabinfo - version: 2.1\n# name <active_objs> <num_objs>\n\
                          dentry  100 200 192 21 1 : tunables 0 0 0 : slabdata 5 5 0\n\
                          :A-0000064 1 2 3 4 5 : tunables 0 0 0 : slabdata 5 5 0\n";

    #[test]
    fn caches_by_name() {
        let all: Vec<_> = slabs(SAMPLE).collect::<Result<_, _>>().unwrap();
        assert_eq!((all[0].name, all[0].values), ("dentry", [100, 200, 192, 21, 1]));
        assert_eq!(all[1].name, ":A-0000064");
        assert_eq!(slabs("a 1 2 3 4\n").next().unwrap().unwrap_err().line, 1);
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = slabs(&text).count();
        }
    }
}
