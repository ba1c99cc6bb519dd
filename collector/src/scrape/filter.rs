//! Filters a guest's metrics page for Prometheus: what a guest must not export is removed, and a
//! page over the limits ends with an error, so that Prometheus stores none of it.

use virtfleet_collector_core::mla::page_rules::{SampleLimits, is_reserved, is_withheld};
use virtfleet_wire::exposition::{Line, parse_line};

use super::line_reader::{LineFailure, LineReader};

/// Filters a page line by line.
#[derive(Debug)]
pub(super) struct PageFilter {
    lines: LineReader,
    limits: SampleLimits,
    samples: u64,
}

impl PageFilter {
    pub(super) fn new(limits: SampleLimits) -> Self {
        Self {
            lines: LineReader::default(),
            limits,
            samples: 0,
        }
    }

    /// Filters the next piece and returns the text to pass on.
    ///
    /// # Errors
    /// The page exceeds a limit or is malformed; the line's number and why.
    pub(super) fn take(&mut self, piece: &[u8]) -> Result<Vec<u8>, String> {
        let mut out = Vec::with_capacity(piece.len());
        let (samples, limits) = (&mut self.samples, self.limits);
        self.lines
            .take(piece, |text| pass(text, limits, samples, &mut out))?;
        Ok(out)
    }

    /// Returns the remaining text at the end of the page.
    ///
    /// # Errors
    /// As [`PageFilter::take`], or there is no sample.
    pub(super) fn finish(&mut self) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        let (samples, limits) = (&mut self.samples, self.limits);
        self.lines.finish(|text| pass(text, limits, samples, &mut out))?;
        if self.samples == 0 {
            return Err("the page has no sample".to_owned());
        }
        Ok(out)
    }
}

fn pass(text: &str, limits: SampleLimits, samples: &mut u64, out: &mut Vec<u8>) -> Result<(), LineFailure> {
    let over_limit = LineFailure::OverLimit;
    let text = text.trim_matches([' ', '\t', '\r']);
    match &parse_line(text)? {
        Line::Blank | Line::Eof => return Ok(()),
        Line::Help(name, _) | Line::Type(name, _) if is_reserved(name) => return Ok(()),
        Line::Help(..) | Line::Type(..) => out.extend_from_slice(text.as_bytes()),
        Line::Sample(sample) => {
            *samples += 1;
            if *samples > limits.samples {
                return Err(over_limit(format!("more than {} samples", limits.samples)));
            }
            limits.check(sample).map_err(over_limit)?;
            if is_withheld(sample) {
                return Ok(());
            }
            // Without what follows the value: a guest must not choose the time of its samples.
            let mut rest = text[sample.series.len()..].split([' ', '\t']);
            let value = rest.find(|word| !word.is_empty()).unwrap_or_default();
            for part in [sample.series, " ", value] {
                out.extend_from_slice(part.as_bytes());
            }
        }
    }
    out.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(page: &[u8], samples: u64, size: usize) -> Result<String, String> {
        let mut filter = PageFilter::new(SampleLimits::new(samples));
        let mut out = Vec::new();
        for piece in page.chunks(size) {
            out.extend(filter.take(piece)?);
        }
        out.extend(filter.finish()?);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn reserved_families_and_timestamps_are_removed() {
        let page = "# HELP node_load1 L.\n# TYPE node_load1 gauge\nnode_load1{a=\"x y\"} 0.5 1700000000000\r\n\
            # a comment\n# HELP virtfleet_vm_placement_info P.\n# TYPE virtfleet_vm_placement_info gauge\n\
            virtfleet_vm_placement_info{zone=\"z\"} 1\nvirtfleet_inventory_synced 1\nvirtfleet_host_ready{} 1\n\
            virtfleet_cluster_vms 2\nvirtfleet_label_drift 3\nvirtfleet_guest_uptime 1\n# EOF\nnode_boot 1\n\
            # TYPE up gauge\nup 1\nvm:node_cpus:count 9\nnode_load5{__name__=\"up\"} 1\n\
            virtfleet_collector_leader 1\nnode_load5 \t2 1700000000000 and more\nnode_load15{} 3\t4 5\n\
            node_load15{a=\"}\"}4 # {} 1";
        let expected = "# HELP node_load1 L.\n# TYPE node_load1 gauge\nnode_load1{a=\"x y\"} 0.5\n\
            virtfleet_guest_uptime 1\nnode_boot 1\nnode_load5 2\nnode_load15{} 3\n\
            node_load15{a=\"}\"} 4\n";
        for size in [1, 3, 64, page.len()] {
            assert_eq!(filter(page.as_bytes(), 100, size).unwrap(), expected);
        }
    }

    #[test]
    fn a_page_over_a_limit_ends_at_that_line() {
        let error = |page: &str| filter(page.as_bytes(), 3, 7).unwrap_err();
        assert_eq!(error("a 1\na 2\na 3\na 4\n"), "line 4: more than 3 samples");
        assert!(error(&format!("a{{l=\"{}\"}} 1\n", "x".repeat(1025))).starts_with("line 1: a label"));
        let labels: Vec<_> = (0..31).map(|n| format!("l{n}=\"\"")).collect();
        assert!(error(&format!("a{{{}}} 1\n", labels.join(","))).ends_with("more than 30 labels"));
        assert!(error(&format!("{} 1\n", "a".repeat(201))).contains("name"));
        assert!(error("<html>\n").starts_with("line 1"));
        assert!(error("# nothing\n").contains("no sample"));
        // Removed families count as well: they cost as much to parse.
        assert!(error(&"virtfleet_vm_up 1\n".repeat(4)).contains("samples"));
    }
}
