//! Why a report is not read.

/// Why a document is not a report that this version reads.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// More bytes than a report may have.
    #[error("{0} bytes, and a report has at most {MAX_REPORT_BYTES}")]
    TooLarge(usize),
    /// More of something than a report may have.
    #[error("more than {limit} {what}")]
    TooMany {
        /// Of what, e.g. `sections`.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// Not JSON of a report's shape.
    #[error("not a report: {0}")]
    Malformed(#[from] serde_json::Error),
    /// JSON, but of another kind or of a version that this one does not know.
    #[error("apiVersion {api_version:?}, kind {kind:?}; expected {REPORT_API_VERSION:?}, {REPORT_KIND:?}")]
    Foreign {
        /// What it says.
        api_version: String,
        /// What it says.
        kind: String,
    },
}

/// The report's `apiVersion`.
pub const REPORT_API_VERSION: &str = "report.virtfleet.io/v1";

/// The report's `kind`.
pub const REPORT_KIND: &str = "GuestReport";

/// The most that a report may weigh, in bytes of JSON; a section that would pass it is cut and
/// marked `truncated`.
pub const MAX_REPORT_BYTES: usize = 256 * 1024;
