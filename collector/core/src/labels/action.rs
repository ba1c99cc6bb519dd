//! What happens to a label.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Action on one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// None: the key is in its desired state.
    Keep,
    /// Write the desired value.
    Set,
    /// Remove the label.
    Remove,
    /// Write back the value that the label had before the collector wrote it.
    Restore,
    /// None, although the value differs: a finding reports it.
    Report,
}
