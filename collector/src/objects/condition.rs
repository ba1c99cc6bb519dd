//! The condition type of all statuses.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

/// One aspect of the object's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition, in CamelCase.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub kind: String,
    /// Status of the condition.
    pub status: ConditionStatus,
    /// Reason in CamelCase.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// Message for display; may be empty.
    #[schemars(length(max = 32_768))]
    pub message: String,
    /// When the status last changed, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// The generation of the spec that was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl Condition {
    /// Sets the last transition to that of the same type in `before`, or to `now` if the status
    /// differs.
    #[must_use]
    pub fn at(mut self, before: &[Self], now: &str) -> Self {
        let known = before.iter().find(|known| known.kind == self.kind);
        known
            .filter(|known| known.status == self.status)
            .map_or(now, |known| known.last_transition_time.as_str())
            .clone_into(&mut self.last_transition_time);
        self
    }

    /// A condition without transition time; [`Condition::at`] sets it.
    pub fn new(kind: &str, status: ConditionStatus, reason: &str, message: String) -> Self {
        Self {
            kind: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message,
            last_transition_time: String::new(),
            observed_generation: None,
        }
    }
}

/// Sets the list type that lets several controllers own conditions: a map by `type`.
pub(super) fn by_type(schema: &mut Schema) {
    schema.insert("x-kubernetes-list-type".to_owned(), "map".into());
    schema.insert("x-kubernetes-list-map-keys".to_owned(), vec!["type"].into());
}
