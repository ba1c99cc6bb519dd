//! `/proc/zoneinfo`: memory by node and zone (kernel: `mm/vmstat.c`, `zoneinfo_show_print`).

use super::{ParseError, buddyinfo::zone, words};

/// Line of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneLine<'text> {
    /// Number of the NUMA node.
    pub node: &'text str,
    /// Zone.
    pub zone: &'text str,
    /// Field, e.g. `min`, `nr_dirtied` or `protection:`.
    pub field: &'text str,
    /// Text after the field.
    pub rest: &'text str,
    index: usize,
}

impl ZoneLine<'_> {
    /// Parses the value of a field with one value.
    ///
    /// # Errors
    ///
    /// The value is not a number.
    pub fn value(&self) -> Result<i64, ParseError> {
        number(self.rest.trim(), self.index)
    }
    /// Parses the values of a field such as `protection: (0, 2816, 7950)`.
    pub fn values(&self) -> impl Iterator<Item = Result<i64, ParseError>> {
        let list = self.rest.trim().trim_start_matches('(').trim_end_matches(')');
        list.split(',').map(|word| number(word.trim(), self.index))
    }
}

fn number(word: &str, index: usize) -> Result<i64, ParseError> {
    word.parse().map_err(|_| ParseError::at(index, "a number", word))
}

/// Returns the lines with a field and a value, with their zone. Values of a whole node belong to
/// its first zone.
pub fn lines(text: &str) -> impl Iterator<Item = ZoneLine<'_>> {
    let mut under = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if let Some((node, name, _)) = zone(line) {
            under = Some((node, name));
            return None;
        }
        let (node, zone) = under?;
        let field = words(line).next()?;
        let rest = line.trim_start().strip_prefix(field).unwrap_or_default();
        Some(ZoneLine {
            node,
            zone,
            field,
            rest,
            index,
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "Node 0, zone      DMA\n  per-node stats\n      nr_dirtied   4651668\n  pages free     3840\n\
                          \x20       min      22\n        protection: (0, 2816, 7950)\nNode 0, zone   Normal\n        min      -5\n";

    #[test]
    fn fields_by_zone() {
        let all: Vec<_> = lines(SAMPLE).collect();
        let min = all.iter().filter(|line| line.field == "min").collect::<Vec<_>>();
        assert_eq!((min[0].zone, min[0].value()), ("DMA", Ok(22)));
        assert_eq!((min[1].zone, min[1].value()), ("Normal", Ok(-5)));
        let protection = all.iter().find(|line| line.field == "protection:").unwrap();
        assert_eq!(
            protection.values().collect::<Result<Vec<_>, _>>(),
            Ok(vec![0, 2816, 7950])
        );
        assert!(lines("min 5").next().is_none(), "a field before any zone");
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            for line in lines(&text) {
                line.value().ok();
                let _ = line.values().count();
            }
        }
    }
}
