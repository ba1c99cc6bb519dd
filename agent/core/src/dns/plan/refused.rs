//! What a DNS plan refuses.

use super::super::ours;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    Settings,
    /// No requested nameserver may be used and answers; the configuration in use stays.
    NothingVerified,
    /// A file of another owner is at the path, or `/etc/resolv.conf` cannot be changed.
    NotOurs,
    NoTool,
    /// A link has its own nameservers for certain domains, and the agent's files would remove them.
    SplitDns,
    /// The current state cannot be determined.
    Unreadable,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    pub kind: RefusalKind,
    /// One sentence with what was found and where.
    pub message: String,
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
