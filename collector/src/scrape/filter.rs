//! Filters a guest's metrics page for Prometheus: families reserved for the collector are removed,
//! and a page over the limits ends with an error, so that Prometheus stores none of it.

use virtfleet_wire::exposition::{Line, Sample};

use super::line_reader::LineReader;

/// Limits on one page.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageLimits {
    /// Maximum samples.
    pub(super) samples: u64,
}

/// Maximum number of labels of a sample. Samples of node_exporter have at most ten; Cortex accepts
/// 40 including the target's labels.
const MAX_LABELS: usize = 30;
/// Maximum length of a label's value, in bytes. The longest values of node_exporter are mount
/// points.
const MAX_LABEL_VALUE_BYTES: usize = 1024;
/// Maximum length of a metric's or label's name, in bytes.
const MAX_NAME_BYTES: usize = 200;
/// Prefixes of families that only the collector may export: a guest's families would look like the
/// platform's.
const RESERVED_PREFIXES: [&str; 5] = [
    "virtfleet_vm_",
    "virtfleet_host_",
    "virtfleet_cluster_",
    "virtfleet_label_",
    "virtfleet_inventory_",
];

/// Filters a page line by line.
#[derive(Debug)]
pub(super) struct PageFilter {
    lines: LineReader,
    limits: PageLimits,
    samples: u64,
}

impl PageFilter {
    pub(super) fn new(limits: PageLimits) -> Self {
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
            .take(piece, |text, line| pass(text, line, limits, samples, &mut out))?;
        Ok(out)
    }

    /// Returns the remaining text at the end of the page.
    ///
    /// # Errors
    /// As [`PageFilter::take`], or there is no sample.
    pub(super) fn finish(&mut self) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        let (samples, limits) = (&mut self.samples, self.limits);
        self.lines
            .finish(|text, line| pass(text, line, limits, samples, &mut out))?;
        if self.samples == 0 {
            return Err("the page has no sample".to_owned());
        }
        Ok(out)
    }
}

/// Whether only the collector may export a family of this name.
pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn pass(
    text: &str,
    line: &Line<'_>,
    limits: PageLimits,
    samples: &mut u64,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let kept = match line {
        Line::Blank | Line::Eof => return Ok(()),
        Line::Help(name, _) | Line::Type(name, _) if is_reserved(name) => return Ok(()),
        Line::Help(..) | Line::Type(..) => text,
        Line::Sample(sample) => {
            *samples += 1;
            if *samples > limits.samples {
                return Err(format!("more than {} samples", limits.samples));
            }
            check(sample)?;
            if is_reserved(sample.name) {
                return Ok(());
            }
            without_timestamp(text, sample)
        }
    };
    out.extend_from_slice(kept.trim_matches([' ', '\t', '\r']).as_bytes());
    out.push(b'\n');
    Ok(())
}

fn check(sample: &Sample<'_>) -> Result<(), String> {
    if sample.name.len() > MAX_NAME_BYTES {
        return Err(format!("a metric's name of more than {MAX_NAME_BYTES} bytes"));
    }
    let mut count = 0;
    for label in sample.labels.clone() {
        let (name, value) = label.map_err(|error| error.to_string())?;
        count += 1;
        if count > MAX_LABELS {
            return Err(format!("more than {MAX_LABELS} labels"));
        }
        if name.len() > MAX_NAME_BYTES || value.len() > MAX_LABEL_VALUE_BYTES {
            return Err(format!(
                "a label of more than {MAX_NAME_BYTES} bytes in its name or {MAX_LABEL_VALUE_BYTES} in its value"
            ));
        }
    }
    Ok(())
}

/// Removes the timestamp: a guest must not choose the time of its samples.
fn without_timestamp<'a>(text: &'a str, sample: &Sample<'_>) -> &'a str {
    let text = text.trim_matches([' ', '\t', '\r']);
    match (sample.timestamp_ms, text.rfind([' ', '\t'])) {
        (Some(_), Some(end)) => &text[..end],
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(page: &[u8], samples: u64, size: usize) -> Result<String, String> {
        let mut filter = PageFilter::new(PageLimits { samples });
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
            virtfleet_cluster_vms 2\nvirtfleet_label_drift 3\nvirtfleet_guest_uptime 1\n# EOF\nnode_boot 1";
        let expected = "# HELP node_load1 L.\n# TYPE node_load1 gauge\nnode_load1{a=\"x y\"} 0.5\n\
            virtfleet_guest_uptime 1\nnode_boot 1\n";
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
