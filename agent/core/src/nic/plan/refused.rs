//! What a plan of queues refuses.

use serde::{Deserialize, Serialize};

/// Reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The settings are invalid.
    Settings,
    /// The kernel or the driver does not support it.
    Unsupported,
    /// The current state cannot be read.
    Unreadable,
    /// The interface is no longer the one for which the plan was made.
    Replaced,
}

/// Refusal with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Reason.
    pub kind: RefusalKind,
    /// Subject, e.g. `eth0`, `vda` or a settings key.
    pub subject: String,
    /// One sentence with what was found.
    pub message: String,
    /// What to do next.
    pub remedy: String,
}
