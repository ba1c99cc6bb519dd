//! A finding: one thing that somebody should know, with its evidence and what to do about it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How bad it is. Ordered: `Info < Warning < Critical`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", from = "String")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Info,
    /// Wrong, and it will hurt later or hurts a little now. Also what an unknown, newer severity is
    /// read as.
    Warning,
    /// Wrong now, and somebody should act.
    Critical,
}

impl From<String> for Severity {
    fn from(text: String) -> Self {
        match text.as_str() {
            "info" => Self::Info,
            "critical" => Self::Critical,
            _ => Self::Warning,
        }
    }
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    /// e.g. `VM`, `Settings`, `Disk`, `Manifest`.
    pub kind: String,
    /// e.g. `cluster-a/worker-0`, `/etc/virtfleet/agent.yaml`.
    pub name: String,
}

/// One finding. Its `id` and `subject` together identify it: the same two mean the same finding,
/// seen again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Stable and made for machines, e.g. `identity-uuid-mismatch`. Listed in `docs/findings.md`.
    pub id: String,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub subject: Subject,
    /// One CamelCase word, as in a Kubernetes condition.
    pub reason: String,
    /// One sentence for a person: what is wrong, and where.
    pub message: String,
    /// The values that led to it, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub evidence: BTreeMap<String, String>,
    /// What to do next: a command to type or a field to set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// When it was first seen, RFC 3339 in UTC; empty until a program with a clock has seen it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub since: String,
}

impl Finding {
    /// A finding without evidence, remedy and time; add them with [`Finding::with`],
    /// [`Finding::remedy`].
    pub fn new(
        id: &str,
        severity: Severity,
        subject: (&str, &str),
        reason: &str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            id: id.to_owned(),
            severity,
            subject: Subject {
                kind: subject.0.to_owned(),
                name: subject.1.to_owned(),
            },
            reason: reason.to_owned(),
            message: message.into(),
            evidence: BTreeMap::new(),
            remedy: String::new(),
            since: String::new(),
        }
    }

    /// The same with one more piece of evidence.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.evidence.insert(name.to_owned(), value.to_string());
        self
    }

    /// The same with what to do next.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}
