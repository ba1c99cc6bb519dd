//! `GuestHealth`: state of one VM, for display with kubectl.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::finding::Severity;

use super::{Condition, condition::by_type};

/// State of the VM of the same name: its placement, whether its agent reports, and its findings.
/// The collector writes it and deletes it with the VM.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "virtfleet.io",
    version = "v1alpha1",
    kind = "GuestHealth",
    plural = "guesthealths",
    shortname = "gh",
    category = "virtfleet",
    namespaced,
    no_spec,
    status = "GuestHealthStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "State of the VM of the same name. The collector writes it and deletes it with the VM.",
    printcolumn(name = "Verdict", type_ = "string", json_path = ".status.verdict"),
    printcolumn(name = "Cause", type_ = "string", json_path = ".status.cause"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".status.placement.cluster"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.placement.userNode"),
    printcolumn(name = "Host", type_ = "string", json_path = ".status.placement.infraNode"),
    printcolumn(
        name = "Zone",
        type_ = "string",
        json_path = ".status.placement.zone",
        priority = 1
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status",
        priority = 1
    ),
    printcolumn(
        name = "Placed",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Placed')].status",
        priority = 1
    ),
    printcolumn(
        name = "Agent",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='AgentReporting')].status",
        priority = 1
    ),
    printcolumn(
        name = "Labels",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='LabelsInSync')].status",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct GuestHealthSpec {}

/// State of the VM. Written only on change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestHealthStatus {
    /// Healthy: the verdict is Healthy. Ready: Placed, AgentReporting and LabelsInSync are True;
    /// otherwise the reason is that of the first one that is not. Placed: the VM has a known infra
    /// node. AgentReporting: its agent answers. LabelsInSync: all labels of its Node have their
    /// desired values. The documentation lists the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = by_type)]
    pub conditions: Vec<Condition>,
    /// Whether the VM is well: Healthy, Degraded (it serves, and something is wrong), Critical (it
    /// does not serve), or Unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Healthy", "Unknown", "Degraded", "Critical"]))]
    pub verdict: Option<String>,
    /// What the problem comes from: host, storage, vm, migration, network, guest, neighbour, agent,
    /// labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub cause: Option<String>,
    /// Reason of the verdict, one word in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// The verdict in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
    /// Next command to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub next: Option<String>,
    /// Placement of the VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Its last live migration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_migration: Option<LastMigration>,
    /// Findings about the VM, the most severe ones first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub findings: Vec<GuestHealthFinding>,
}

/// Placement of a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// The user cluster of its Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Its Node in the user cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_node: Option<String>,
    /// The node of the infra cluster on which it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra_node: Option<String>,
    /// That node's region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// That node's zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// A live migration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastMigration {
    /// The source node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The target node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Whether the migration has ended.
    #[serde(default)]
    pub completed: bool,
    /// Whether the migration has failed.
    #[serde(default)]
    pub failed: bool,
    /// Start of the migration, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub start: Option<String>,
    /// End of the migration, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub end: Option<String>,
}

/// A finding about the VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestHealthFinding {
    /// The finding's id; see the documentation.
    #[schemars(length(min = 1, max = 253))]
    pub id: String,
    /// Severity of the finding.
    #[schemars(extend("enum" = ["info", "warning", "critical"]))]
    pub severity: Severity,
    /// What is wrong.
    #[schemars(length(max = 4096))]
    pub message: String,
}
