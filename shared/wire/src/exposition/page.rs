//! The page writer: writes families and samples into one buffer that is reused for every scrape.

use std::io::Write as _;

use super::{MetricType, is_label_name, is_metric_name};

/// A page under construction. Reuse it: [`Page::clear`] keeps the buffer, so that later scrapes
/// allocate no memory.
#[derive(Debug, Default)]
pub struct Page {
    text: Vec<u8>,
    samples: usize,
}

/// A position on a page, for [`Page::rollback`].
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    length: usize,
    samples: usize,
}

impl Page {
    /// An empty page.
    pub fn new() -> Self {
        Self::default()
    }
    /// Empties the page and keeps its buffer.
    pub fn clear(&mut self) {
        self.text.clear();
        self.samples = 0;
    }
    /// The text so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }
    /// The text so far. It is UTF-8, because only `&str`s are written.
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
    /// Number of samples on the page.
    pub fn samples(&self) -> usize {
        self.samples
    }
    /// The current position.
    pub fn mark(&self) -> Mark {
        Mark {
            length: self.text.len(),
            samples: self.samples,
        }
    }
    /// Removes everything that was written after `mark`: a failed collector leaves no incomplete
    /// output.
    pub fn rollback(&mut self, mark: Mark) {
        self.text.truncate(mark.length);
        self.samples = mark.samples;
    }
    /// Appends another page.
    pub fn append(&mut self, other: &Self) {
        self.text.extend_from_slice(&other.text);
        self.samples += other.samples;
    }
    /// Keeps the first `limit` samples, and returns how many were dropped.
    pub fn keep(&mut self, limit: usize) -> usize {
        let dropped = self.samples.saturating_sub(limit);
        if dropped > 0 {
            // The end of the last kept sample. What follows belongs to later samples.
            let (mut kept, mut end, mut at) = (0, 0, 0);
            for line in self.text.split_inclusive(|byte| *byte == b'\n') {
                if kept == limit {
                    break;
                }
                at += line.len();
                if !line.starts_with(b"#") {
                    kept += 1;
                    end = at;
                }
            }
            self.text.truncate(end);
            self.samples = limit;
        }
        dropped
    }
    /// Starts a family. Its `# HELP` and `# TYPE` lines are written with its first sample, so a
    /// family without samples writes nothing. All samples of a family must be written before the
    /// next family starts (format 0.0.4), and a page has each family once.
    pub fn family<'page>(
        &'page mut self,
        name: &'page str,
        help: &'page str,
        kind: MetricType,
    ) -> Family<'page> {
        debug_assert!(is_metric_name(name), "{name:?} is no metric name");
        Family {
            page: self,
            name,
            help,
            kind,
            started: false,
        }
    }
    /// Writes a gauge with one sample without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, help, MetricType::Gauge).sample(&[], value);
    }
    /// Writes a counter with one sample without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, help, MetricType::Counter).sample(&[], value);
    }
}

/// A family under construction.
#[derive(Debug)]
pub struct Family<'page> {
    page: &'page mut Page,
    name: &'page str,
    help: &'page str,
    kind: MetricType,
    started: bool,
}

impl Family<'_> {
    /// Marks the `# HELP` and `# TYPE` lines as already written.
    pub(super) fn continued(mut self) -> Self {
        self.started = true;
        self
    }

    /// Writes one sample. Label values may contain any text; they are escaped.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.suffixed("", labels, value);
    }

    /// Writes one sample under the family's name and `suffix` (`_bucket`, `_sum`, `_count`).
    pub fn suffixed(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        if !self.started {
            self.start();
        }
        let text = &mut self.page.text;
        text.extend_from_slice(self.name.as_bytes());
        text.extend_from_slice(suffix.as_bytes());
        for (index, (name, value)) in labels.iter().enumerate() {
            debug_assert!(is_label_name(name), "{name:?} is no label name");
            text.push(if index == 0 { b'{' } else { b',' });
            text.extend_from_slice(name.as_bytes());
            text.extend_from_slice(b"=\"");
            escape(text, value, true);
            text.push(b'"');
        }
        if !labels.is_empty() {
            text.push(b'}');
        }
        text.push(b' ');
        number(text, value);
        text.push(b'\n');
        self.page.samples += 1;
    }

    fn start(&mut self) {
        self.started = true;
        let text = &mut self.page.text;
        text.extend_from_slice(b"# HELP ");
        text.extend_from_slice(self.name.as_bytes());
        text.push(b' ');
        escape(text, self.help, false);
        text.extend_from_slice(b"\n# TYPE ");
        text.extend_from_slice(self.name.as_bytes());
        text.push(b' ');
        text.extend_from_slice(self.kind.as_str().as_bytes());
        text.push(b'\n');
    }
}

/// Appends an escaped text: label values escape `\`, `"` and line feed; help texts escape `\` and
/// line feed.
fn escape(text: &mut Vec<u8>, value: &str, quotes: bool) {
    let mut rest = value.as_bytes();
    while let Some(at) = rest
        .iter()
        .position(|b| matches!(b, b'\\' | b'\n') || (quotes && *b == b'"'))
    {
        text.extend_from_slice(&rest[..at]);
        text.push(b'\\');
        text.push(if rest[at] == b'\n' { b'n' } else { rest[at] });
        rest = &rest[at + 1..];
    }
    text.extend_from_slice(rest);
}

/// Appends the shortest text that parses to the same number. Whole numbers below 2^53 have no
/// fraction.
fn number(text: &mut Vec<u8>, value: f64) {
    const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;
    let written = if value.is_nan() {
        text.write_all(b"NaN")
    } else if value.is_infinite() {
        text.write_all(if value > 0.0 { b"+Inf" } else { b"-Inf" })
    } else if value.fract() == 0.0 && value.abs() < MAX_EXACT_INTEGER {
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
        let whole = value as i64;
        // An integer has no negative zero.
        if whole == 0 && value.is_sign_negative() {
            text.push(b'-');
        }
        write!(text, "{whole}")
    } else if value.abs() >= MAX_EXACT_INTEGER || value.abs() < 1e-5 {
        write!(text, "{value:e}")
    } else {
        write!(text, "{value}")
    };
    debug_assert!(written.is_ok(), "writing to a vector cannot fail");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::exposition::{Line, parse_line};

    #[test]
    fn a_page_as_prometheus_documents_it() {
        let mut page = Page::new();
        page.family("never", "No sample, no trace.", MetricType::Gauge);
        let mut family = page.family("node_x_total", "Back\\slash and\nline.", MetricType::Counter);
        family.sample(&[("device", "a\"b\\c\nd"), ("mode", "user")], 1.5);
        family.sample(&[("device", "e"), ("mode", "idle")], 12_345_678.0);
        page.gauge("node_y", "Y.", f64::NEG_INFINITY);
        assert_eq!(
            page.to_text(),
            "# HELP node_x_total Back\\\\slash and\\nline.\n# TYPE node_x_total counter\n\
             node_x_total{device=\"a\\\"b\\\\c\\nd\",mode=\"user\"} 1.5\n\
             node_x_total{device=\"e\",mode=\"idle\"} 12345678\n\
             # HELP node_y Y.\n# TYPE node_y gauge\nnode_y -Inf\n"
        );
        assert_eq!(page.samples(), 3);
    }

    #[test]
    fn a_negative_zero_keeps_its_sign() {
        let mut page = Page::new();
        page.gauge("x", "X.", -0.0);
        page.gauge("y", "Y.", 0.0);
        let text = page.to_text();
        assert!(text.contains("x -0\n") && text.contains("y 0\n"), "{text}");
    }

    #[test]
    fn rollback_takes_back_what_followed() {
        let mut page = Page::new();
        page.gauge("a", "A.", 1.0);
        let mark = page.mark();
        page.gauge("b", "B.", 1.0);
        page.rollback(mark);
        assert_eq!(page.to_text(), "# HELP a A.\n# TYPE a gauge\na 1\n");
        assert_eq!(page.samples(), 1);
    }

    #[test]
    fn what_is_beyond_a_limit_is_dropped_whole_and_counted() {
        let pages = |limit| {
            let mut page = Page::new();
            for name in ["a", "b"] {
                let mut family = page.family(name, "H.", MetricType::Gauge);
                family.sample(&[("x", "# 1\n")], 1.0);
                family.sample(&[("x", "2")], 2.0);
            }
            let dropped = page.keep(limit);
            (dropped, page.samples(), page.to_text())
        };
        let (dropped, samples, whole) = pages(4);
        assert_eq!((dropped, samples), (0, 4));
        let (dropped, samples, text) = pages(3);
        assert_eq!((dropped, samples), (1, 3));
        assert!(whole.starts_with(&text) && text.ends_with("b{x=\"# 1\\n\"} 1\n"));
        let (_, _, text) = pages(2);
        assert!(
            text.ends_with("a{x=\"2\"} 2\n"),
            "a family without samples leaves no trace: {text}"
        );
        assert_eq!(pages(0), (4, 0, String::new()));
    }

    proptest! {
        #[test]
        #[expect(clippy::float_cmp, reason = "the same number is asked for")]
        fn what_is_written_reads_back(label in ".*", value in any::<f64>()) {
            let mut page = Page::new();
            page.family("m", "h", MetricType::Gauge).sample(&[("l", &label)], value);
            let text = page.to_text();
            let line = text.split('\n').nth(2).unwrap();
            let Ok(Line::Sample(sample)) = parse_line(line) else { panic!("{line:?}") };
            prop_assert!(sample.value == value || (sample.value.is_nan() && value.is_nan()));
            let labels: Vec<_> = sample.labels.collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(labels, vec![("l", std::borrow::Cow::Borrowed(label.as_str()))]);
        }
    }
}
