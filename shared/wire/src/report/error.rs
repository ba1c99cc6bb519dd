//! Errors of parsing a report.

/// Error of parsing a report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The report exceeds [`MAX_REPORT_BYTES`].
    #[error("{0} bytes, and a report has at most {MAX_REPORT_BYTES}")]
    TooLarge(usize),
    /// The report has too many entries of one kind.
    #[error("more than {limit} {what}")]
    TooMany {
        /// What exceeds the limit, e.g. `sections`.
        what: &'static str,
        /// Maximum number.
        limit: usize,
    },
    /// Not JSON, or JSON without the shape of a report.
    #[error("not a report: {0}")]
    Malformed(#[from] serde_json::Error),
    /// JSON of another kind, or of an unsupported version.
    #[error("apiVersion {api_version:?}, kind {kind:?}; expected {REPORT_API_VERSION:?}, {REPORT_KIND:?}")]
    Foreign {
        /// The report's `apiVersion`.
        api_version: String,
        /// The report's `kind`.
        kind: String,
    },
}

/// The report's `apiVersion`.
pub const REPORT_API_VERSION: &str = "report.virtfleet.io/v1";

/// The report's `kind`.
pub const REPORT_KIND: &str = "GuestReport";

/// Maximum size of a report, in bytes of JSON. A section that would exceed it is shortened and
/// marked `truncated`.
pub const MAX_REPORT_BYTES: usize = 256 * 1024;
