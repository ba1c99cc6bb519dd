//! Findings: each reports one condition, with its evidence and a remedy.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Severity of a finding. Ordered: `Info < Warning < Critical`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", from = "String")]
pub enum Severity {
    /// Information; nothing is wrong.
    Info,
    /// A problem with a small effect now, or an effect later. Unknown severities of newer agents
    /// are read as this one.
    Warning,
    /// A problem that needs action now.
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

/// Subject of a finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    /// Kind, e.g. `VM`, `Settings`, `Disk`, `Manifest`.
    pub kind: String,
    /// Name, e.g. `cluster-a/worker-0`, `/etc/virtfleet/agent.yaml`.
    pub name: String,
}

/// One finding. `id` and `subject` together identify it: two findings with the same values are the
/// same finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Stable, machine-readable identifier, e.g. `identity-uuid-mismatch`. Listed in
    /// `docs/findings.md`.
    pub id: String,
    /// Severity.
    pub severity: Severity,
    /// Subject.
    pub subject: Subject,
    /// Reason: one CamelCase word, as in a Kubernetes condition.
    pub reason: String,
    /// Human-readable sentence: what is wrong, and where.
    pub message: String,
    /// Values from which the finding follows, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub evidence: BTreeMap<String, String>,
    /// Next step: a command to run or a field to set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// Time at which the finding was first seen, RFC 3339 in UTC. Empty until a program with a
    /// clock has seen it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub since: String,
}

impl Finding {
    /// Creates a finding without evidence, remedy and time. [`Finding::with`] and
    /// [`Finding::remedy`] add them.
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

    /// Adds one piece of evidence.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.evidence.insert(name.to_owned(), value.to_string());
        self
    }

    /// Sets the remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}
