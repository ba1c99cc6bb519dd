//! `/proc/buddyinfo`: free blocks of memory by zone and size (kernel: `mm/vmstat.c`, `frag_show`).

use super::{ParseError, counter, words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeBlocks<'text> {
    /// Number of the NUMA node.
    pub node: &'text str,
    /// Zone, e.g. `Normal`.
    pub zone: &'text str,
    /// Size: each block has 2^`order` pages.
    pub order: usize,
    pub blocks: u64,
}

/// Parses the free lists of all zones. A line with a malformed count is one error.
pub fn blocks(text: &str) -> impl Iterator<Item = Result<FreeBlocks<'_>, ParseError>> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines.flat_map(|(index, line)| {
        let whole =
            |(_, _, counts): &(&str, &str, &str)| words(counts).all(|word| word.parse::<u64>().is_ok());
        let zone = zone(line).filter(whole);
        let bad = zone
            .is_none()
            .then(|| Err(ParseError::at(index, "Node N, zone NAME and counts", line)));
        let blocks = zone.into_iter().flat_map(move |(node, zone, counts)| {
            words(counts).enumerate().map(move |(order, word)| {
                counter(Some(word), index, "a number of free blocks").map(|blocks| FreeBlocks {
                    node,
                    zone,
                    order,
                    blocks,
                })
            })
        });
        bad.into_iter().chain(blocks)
    })
}

/// Splits a line into node, zone and rest.
pub(super) fn zone(line: &str) -> Option<(&str, &str, &str)> {
    let (node, rest) = line.trim().strip_prefix("Node ")?.split_once(',')?;
    let rest = rest.trim_start().strip_prefix("zone")?.trim_start();
    let (zone, counts) = rest.split_once(' ').unwrap_or((rest, ""));
    let plain = node.bytes().all(|byte| byte.is_ascii_digit()) && !node.is_empty() && !zone.is_empty();
    plain.then_some((node, zone, counts))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "Node 0, zone      DMA      0      1\nNode 1, zone   Normal  32784  15771\n";

    #[test]
    fn free_lists_by_zone() {
        let all: Vec<_> = blocks(SAMPLE).collect::<Result<_, _>>().unwrap();
        assert_eq!(all.len(), 4);
        let last = FreeBlocks {
            node: "1",
            zone: "Normal",
            order: 1,
            blocks: 15771,
        };
        assert_eq!(all[3], last);
        for text in [
            "Node 0 zone DMA 1",
            "Node x, zone DMA 1",
            "Node 0, zone DMA x",
            "1 2",
        ] {
            assert!(blocks(text).next().unwrap().is_err(), "{text}");
            assert_eq!(blocks(&format!("{text}\n{SAMPLE}")).flatten().count(), 4);
        }
        assert_eq!(blocks("Node 0, zone DMA 1 x 3").count(), 1, "the whole line");
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = blocks(&text).count();
        }
    }
}
