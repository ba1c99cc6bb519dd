//! State of a VM's page.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::{ClusterName, VmKey};

use crate::pull_result::UnixMs;

/// The last page of a VM that was pulled for the streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetStatus {
    pub vm: VmKey,
    /// The user cluster whose stream has its samples; none if only the operator's has.
    pub cluster: Option<ClusterName>,
    /// Start of the pull: the timestamp of its samples.
    pub last_scrape_ms: UnixMs,
    /// Duration of the pull, in milliseconds.
    pub took_ms: u64,
    /// Samples on the page, before relabelling; 0 if the pull failed.
    pub samples: u64,
    /// Series that the page before did not have.
    pub series_added: u64,
    /// Size of the page, in bytes.
    pub page_bytes: u64,
    /// Samples that relabelling of the tenant's stream dropped, or of the operator's if the VM has
    /// no other.
    pub dropped_by_relabel: u64,
    /// Samples of a page that was used which are not sent: they exceed a limit after relabelling,
    /// or have the labels of another sample of the page.
    pub unsent: u64,
    /// Why the page was not used; none if it was.
    pub error: Option<TargetError>,
}

/// Why a page was not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetError {
    /// Kind of error.
    pub reason: TargetErrorReason,
    /// One sentence; see [`super::status_message`].
    pub message: String,
}

/// Kind of a [`TargetError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TargetErrorReason {
    /// The agent did not answer with a complete page.
    PullFailed,
    /// The page is malformed.
    Malformed,
    /// The page exceeds a limit of the stream.
    OverLimit,
}

impl TargetErrorReason {
    /// As in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PullFailed => "pullFailed",
            Self::Malformed => "malformed",
            Self::OverLimit => "overLimit",
        }
    }
}
