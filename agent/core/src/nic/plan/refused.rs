//! What a plan of queues refuses.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    Settings,
    /// The kernel or the driver does not support it.
    Unsupported,
    /// The current state cannot be read.
    Unreadable,
    /// The interface is no longer the one for which the plan was made.
    Replaced,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    pub kind: RefusalKind,
    /// Subject, e.g. `eth0`, `vda` or a settings key.
    pub subject: String,
    /// One sentence with what was found.
    pub message: String,
    pub remedy: String,
}
