//! Words of a VM's health: verdict, cause, and the conditions from which they follow.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pull_result::UnixMs;

/// Health of a VM. Ordered: the highest one of its conditions is the VM's.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum HealthVerdict {
    /// There is positive evidence for every required condition.
    Healthy,
    /// Evidence for a required condition is missing.
    #[default]
    Unknown,
    /// Something is wrong, and the VM still serves.
    Degraded,
    /// The VM does not serve.
    Critical,
}

impl HealthVerdict {
    /// Every verdict, the worst one first.
    pub const ALL: [Self; 4] = [Self::Critical, Self::Degraded, Self::Unknown, Self::Healthy];

    /// The name in JSON and in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Unknown => "Unknown",
            Self::Degraded => "Degraded",
            Self::Critical => "Critical",
        }
    }

    /// The name in metrics and in filters.
    pub fn label(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unknown => "unknown",
            Self::Degraded => "degraded",
            Self::Critical => "critical",
        }
    }
}

/// Part of the system that a problem comes from. Ordered by blame: of two equally severe problems,
/// the one with the earlier cause explains the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum HealthCause {
    /// The infra node.
    Host,
    /// Volumes of the VM and their storage.
    Storage,
    /// The VM as KubeVirt runs it.
    Vm,
    /// A live migration or evacuation.
    Migration,
    /// The network between the collector, the VM and its user cluster.
    Network,
    /// The operating system in the VM, and its kubelet.
    Guest,
    /// Other VMs of the infra node.
    Neighbour,
    /// The agent, its certificate, or the collector's settings for it.
    Agent,
    /// Labels of the VM's Node.
    Labels,
    /// The receiver of the VM's metrics, or the stream to it. Of conditions only: it is no cause of
    /// a verdict.
    Receiver,
}

impl HealthCause {
    /// Every cause, in the order of blame.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HealthConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// There is no evidence.
    #[default]
    Unknown,
}

impl HealthConditionStatus {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Health of a VM: one word, one cause, one sentence.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthView {
    /// Verdict.
    pub verdict: HealthVerdict,
    /// What the worst condition comes from; none if the VM is healthy.
    #[serde(default)]
    pub cause: Option<HealthCause>,
    /// Reason of the worst condition, one word in CamelCase.
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// The sentence for tenants, if it differs: without VMs of others; internal.
    #[serde(skip)]
    pub tenant_message: Option<Box<str>>,
    /// Next command to run; empty if there is nothing to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next: String,
    /// Time of the last change of verdict or cause.
    pub since_ms: UnixMs,
    /// There is no problem so far, and a condition is not decided yet, e.g. because the agent has
    /// not been pulled since the collector started; internal.
    #[serde(skip)]
    pub is_undecided: bool,
    /// Hash of all conditions, with the messages that name an object; internal.
    #[serde(skip)]
    pub conditions_key: u64,
}

/// One condition of a VM's health.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthConditionView {
    /// Its type, e.g. `NodeReady`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: HealthConditionStatus,
    /// Reason, one word in CamelCase.
    pub reason: String,
    /// What it comes from; none if the condition holds.
    #[serde(default)]
    pub cause: Option<HealthCause>,
    /// The verdict of a VM with this condition alone.
    pub severity: HealthVerdict,
    /// One sentence.
    pub message: String,
    /// The sentence for tenants, if it differs: without VMs of others; empty if they do not see the
    /// condition; internal.
    #[serde(skip)]
    pub tenant_message: Option<Box<str>>,
    /// Next command to run; empty if there is nothing to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next: String,
    /// Time of its last change of status, severity, cause or reason.
    pub since_ms: UnixMs,
    /// It is not decided yet; internal.
    #[serde(skip)]
    pub is_undecided: bool,
    /// The message may contain numbers that change with each report; internal.
    #[serde(skip)]
    pub is_measured: bool,
}

impl HealthView {
    /// The sentence without VMs of others.
    pub fn tenant_text(&self) -> &str {
        self.tenant_message.as_deref().unwrap_or(&self.message)
    }
}

impl HealthConditionView {
    /// Whether tenants may see it.
    pub fn is_for_tenants(&self) -> bool {
        self.tenant_message.as_deref() != Some("")
    }

    /// The sentence without VMs of others.
    pub fn tenant_text(&self) -> &str {
        self.tenant_message.as_deref().unwrap_or(&self.message)
    }
}
