//! The decision about one key.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{action::Action, input::Reason, policy::Mode};

/// Decision about one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// The key on the user cluster's Node.
    pub key: String,
    /// The key on the infra node.
    pub source: Option<String>,
    /// The `LabelPropagation` that selects it, several joined by `, `; none if it is withdrawn.
    pub policy: Option<String>,
    /// The mode that applies.
    pub mode: Option<Mode>,
    /// The Node's value.
    pub current: Option<String>,
    /// The infra node's value.
    pub desired: Option<String>,
    /// What the collector does.
    pub action: Action,
    /// The rule that decided.
    pub reason: Reason,
    /// Why, as one line for display, with what to do if the key is not in its desired state.
    pub message: String,
    /// Only a policy with `dryRun` selects it: shown, not sent.
    pub dry_run: bool,
}
