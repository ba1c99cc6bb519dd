//! `/proc/zoneinfo`: memory by node and zone (kernel: `mm/vmstat.c`, `zoneinfo_show_print`).

use super::{ParseError, buddyinfo::zone, words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneLine<'text> {
    /// Number of the NUMA node.
    pub node: &'text str,
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
/// its first zone. Those below a malformed heading are left out.
///
/// # Errors
///
/// An item is an error if a heading is malformed.
pub fn lines(text: &str) -> impl Iterator<Item = Result<ZoneLine<'_>, ParseError>> {
    let mut under = None;
    // Begun parts of the zone: 1 for those of its node, 2 for its pages.
    let mut begun = 0;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if let Some((node, name, _)) = zone(line) {
            under = Some((node, name));
            begun = 0;
            return None;
        }
        if line.starts_with(|c: char| !c.is_ascii_whitespace()) {
            under = None;
            return Some(Err(ParseError::at(index, "Node N, zone NAME", line)));
        }
        let (node, zone) = under?;
        let field = words(line).next()?;
        let part = match field {
            "per-node" => 1,
            "pages" => 2,
            _ => 0,
        };
        if part > 0 && part <= begun {
            // The zone of this part had a malformed heading.
            under = None;
            return Some(Err(ParseError::at(index, "Node N, zone NAME above", line)));
        }
        begun = begun.max(part);
        let rest = line.trim_start().strip_prefix(field).unwrap_or_default();
        Some(Ok(ZoneLine {
            node,
            zone,
            field,
            rest,
            index,
        }))
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
        let all: Vec<_> = lines(SAMPLE).collect::<Result<_, _>>().unwrap();
        let min = all.iter().filter(|line| line.field == "min").collect::<Vec<_>>();
        assert_eq!((min[0].zone, min[0].value()), ("DMA", Ok(22)));
        assert_eq!((min[1].zone, min[1].value()), ("Normal", Ok(-5)));
        let protection = all.iter().find(|line| line.field == "protection:").unwrap();
        assert_eq!(
            protection.values().collect::<Result<Vec<_>, _>>(),
            Ok(vec![0, 2816, 7950])
        );
        assert!(lines("  min 5").next().is_none(), "a field before any zone");
        // Fields below a malformed heading do not belong to the zone above.
        let broken = SAMPLE.replace("Node 0, zone   Normal", "Node 0 zone Normal");
        assert_eq!(lines(&broken).filter(Result::is_err).count(), 1);
        for (heading, part, bad) in [
            ("  noise", "  pages free     7\n", 1),
            (
                "  noise",
                "  per-node stats\n  nr_dirtied   7\n  pages free     7\n",
                1,
            ),
            (
                "Node 1, zone   Normal",
                "  per-node stats\n  pages free     7\n",
                0,
            ),
        ] {
            let text = SAMPLE.replace("Node 0, zone   Normal\n", &format!("{heading}\n{part}"));
            assert_eq!(lines(&text).filter(Result::is_err).count(), bad, "{text}");
            let minimum = lines(&text).flatten().filter(|line| line.field == "min").count();
            assert_eq!(minimum, 2 - bad, "{text}");
        }
        assert!(
            lines(&broken)
                .flatten()
                .all(|line| line.zone == "DMA" && line.rest.trim() != "-5")
        );
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            for line in lines(&text).flatten() {
                line.value().ok();
                let _ = line.values().count();
            }
        }
    }
}
