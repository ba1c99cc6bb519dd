//! Prometheus' text exposition format 0.0.4: the one page writer, and the reader of such pages.
//!
//! Source of the rules: Prometheus documentation, "Exposition formats", section "Text-based
//! format".

mod line;
mod openmetrics;
mod page;

pub use line::{Labels, Line, LineError, Sample, parse_line};
pub use openmetrics::append_openmetrics;
pub use page::{Family, Mark, Page};

/// The `Content-Type` of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A family's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    /// Only goes up, or starts again from 0.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Buckets, sum and count.
    Histogram,
    /// Quantiles, sum and count.
    Summary,
    /// Not said.
    Untyped,
}

impl MetricType {
    /// As it stands in a `# TYPE` line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
            Self::Untyped => "untyped",
        }
    }

    /// From a `# TYPE` line of either format; OpenMetrics' `unknown` and `info` have no counterpart
    /// but these.
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "counter" => Self::Counter,
            "gauge" | "info" | "stateset" => Self::Gauge,
            "histogram" => Self::Histogram,
            "summary" => Self::Summary,
            "untyped" | "unknown" => Self::Untyped,
            _ => return None,
        })
    }
}

/// `[a-zA-Z_:][a-zA-Z0-9_:]*`: the rule for metric names.
pub fn is_metric_name(name: &str) -> bool {
    is_name(name, true)
}

/// `[a-zA-Z_][a-zA-Z0-9_]*`: the rule for label names.
pub fn is_label_name(name: &str) -> bool {
    is_name(name, false)
}

fn is_name(name: &str, colons: bool) -> bool {
    !name.as_bytes().first().is_none_or(u8::is_ascii_digit)
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || (colons && b == b':'))
}
