//! What a DNS plan refuses.

use super::super::ours;
use serde::{Deserialize, Serialize};

/// Reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The settings are invalid.
    Settings,
    /// No requested nameserver may be used and answers; the configuration in use stays.
    NothingVerified,
    /// A file of another owner is at the path, or `/etc/resolv.conf` cannot be changed.
    NotOurs,
    /// A tool is missing.
    NoTool,
    /// A link has its own nameservers for certain domains, and the agent's files would remove them.
    SplitDns,
    /// The current state cannot be determined.
    Unreadable,
}

/// Refusal with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Reason.
    pub kind: RefusalKind,
    /// One sentence with what was found and where.
    pub message: String,
    /// What to do next.
    pub remedy: String,
    /// Evidence by name.
    pub facts: Vec<(String, String)>,
}

impl Refusal {
    /// Whether a file of another owner is at the path of kubelet's drop-in.
    pub(super) fn is_kubelets(&self) -> bool {
        self.kind == RefusalKind::NotOurs && self.facts.iter().any(|(_, what)| ours::is_kubelet_drop_in(what))
    }
}
