//! `/run/virtfleet/state/guest-health.json`: health data that only root can read, written by runs
//! for the unprivileged agent.

use serde::{Deserialize, Serialize};

/// Format version of the file. Readers reject every other version.
pub const FORMAT: u32 = 1;

/// Content of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestHealth {
    /// [`FORMAT`].
    pub v: u32,
    /// Boot in which it was written; it is invalid in another boot.
    pub boot_id: String,
    /// Time of writing, nanoseconds since 1970.
    pub at_ns: u64,
    #[serde(default)]
    pub certificates: Vec<Certificate>,
}

/// Validity period of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    pub path: String,
    /// Start of validity, seconds since 1970.
    pub not_before: i64,
    /// End of validity, seconds since 1970.
    pub not_after: i64,
}
