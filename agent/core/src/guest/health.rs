//! `/run/virtfleet/state/guest-health.json`: what only root may read of the node's health, written in passes for the agent without rights.

use serde::{Deserialize, Serialize};

/// The file's format; a reader takes no other.
pub const FORMAT: u32 = 1;

/// What the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestHealth {
    /// [`FORMAT`].
    pub v: u32,
    /// The boot in which it was written; in another boot it says nothing.
    pub boot_id: String,
    /// When it was written, nanoseconds since 1970.
    pub at_ns: u64,
    /// Kubelet's certificates.
    #[serde(default)]
    pub certificates: Vec<Certificate>,
}

/// A certificate's dates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// Its file.
    pub path: String,
    /// From when on it is valid, seconds since 1970.
    pub not_before: i64,
    /// Until when it is valid, seconds since 1970.
    pub not_after: i64,
}
