//! Writer and parser of Prometheus' text exposition format 0.0.4.
//!
//! Source of the rules: Prometheus documentation, "Exposition formats", section "Text-based
//! format".

mod line;
mod openmetrics;
mod page;

pub use line::{Labels, Line, LineError, Sample, parse_known, parse_line};
pub use openmetrics::append_openmetrics;
pub use page::{Family, Mark, Page};

/// The `Content-Type` of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A family's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    /// A value that only increases, or restarts from 0.
    Counter,
    /// A value that increases and decreases.
    Gauge,
    /// Buckets, sum and count.
    Histogram,
    /// Quantiles, sum and count.
    Summary,
    /// Unknown type.
    Untyped,
}

impl MetricType {
    /// Name of the type in a `# TYPE` line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
            Self::Untyped => "untyped",
        }
    }

    /// Parses the type in a `# TYPE` line of either format. OpenMetrics' `info`, `stateset` and
    /// `unknown` become the closest types of format 0.0.4.
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

/// Whether a name matches the rule for metric names, `[a-zA-Z_:][a-zA-Z0-9_:]*`.
pub fn is_metric_name(name: &str) -> bool {
    is_name(name, true)
}

/// Whether a name matches the rule for label names, `[a-zA-Z_][a-zA-Z0-9_]*`.
pub fn is_label_name(name: &str) -> bool {
    is_name(name, false)
}

fn is_name(name: &str, colons: bool) -> bool {
    !name.as_bytes().first().is_none_or(u8::is_ascii_digit)
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || (colons && b == b':'))
}
