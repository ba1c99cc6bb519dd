//! Checks of a VM's specification, for people and programs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Comparison of one field of a VMI with what its guest sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpecCheckView {
    /// Path of the field in the VMI; items of lists are named.
    pub path: String,
    /// What the VMI asks for.
    pub asked: String,
    /// What the guest sees; none if its report does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// Result.
    pub result: SpecResult,
    /// Whether a difference makes the VM `Degraded`.
    pub matters: bool,
    /// Why the difference matters, or why nothing was seen; empty if both agree.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Result of a [`SpecCheckView`]. Ordered: differences first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SpecResult {
    /// The values differ.
    Differs,
    /// The values agree.
    Agrees,
    /// The guest does not show the value, or its report does not have it.
    NotSeen,
}

impl SpecResult {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Differs => "Differs",
            Self::Agrees => "Agrees",
            Self::NotSeen => "NotSeen",
        }
    }
}
