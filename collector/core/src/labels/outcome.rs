//! What is decided of a label.

use super::{
    owned::OwnedLabel,
    plan::{Action, Reason},
};

/// Planned result for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LabelOutcome {
    pub(super) action: Action,
    pub(super) reason: Reason,
    pub(super) message: String,
    /// The label afterwards.
    pub(super) value: Option<String>,
    /// The entry in the annotation afterwards.
    pub(super) entry: Option<OwnedLabel>,
    /// The key ends in its desired state.
    pub(super) reached: bool,
    /// The change is made only if it is safe.
    pub(super) if_safe: bool,
    pub(super) before: (Option<String>, Option<OwnedLabel>),
}

impl LabelOutcome {
    pub(super) fn changes(&self) -> bool {
        self.value != self.before.0
    }

    /// Replaces the planned change by no change.
    pub(super) fn hold(&mut self, action: Action, reason: Reason, message: String) {
        (self.value, self.entry) = self.before.clone();
        (self.action, self.reason, self.message) = (action, reason, message);
        (self.reached, self.if_safe) = (false, false);
    }

    /// Drops the planned change, because the other member of the pair does not change.
    pub(super) fn hold_with(&mut self, other: &Self) {
        if self.changes() {
            let message = format!(
                "it changes only together with its other name, which does not change: {}",
                other.message
            );
            self.hold(other.action, other.reason, message);
        }
    }
}
