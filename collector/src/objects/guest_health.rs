//! `GuestHealth`: what is known of one VM, for those who look with kubectl.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::finding::Severity;

use super::{Condition, condition::by_type};

/// What is known of the VM of the same name: where it stands, whether its agent reports, and what is wrong. The collector
/// writes it and removes it with the VM.
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
    doc = "What is known of the VM of the same name. The collector writes it and removes it with the VM.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".status.placement.cluster"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.placement.userNode"),
    printcolumn(name = "Host", type_ = "string", json_path = ".status.placement.infraNode"),
    printcolumn(name = "Zone", type_ = "string", json_path = ".status.placement.zone"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    ),
    printcolumn(
        name = "Placed",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Placed')].status"
    ),
    printcolumn(
        name = "Agent",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='AgentReporting')].status"
    ),
    printcolumn(
        name = "Labels",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='LabelsTrue')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct GuestHealthSpec {}

/// What is known of the VM. Written on change only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestHealthStatus {
    /// Ready: all that follow hold; its reason is that of the first that does not. Placed: the VM runs on a known infra node. AgentReporting: its agent answers. LabelsTrue: the labels of its Node are
    /// as the policies ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = by_type)]
    pub conditions: Vec<Condition>,
    /// Where it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Its last live migration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_migration: Option<LastMigration>,
    /// What is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub findings: Vec<GuestHealthFinding>,
}

/// Where a VM stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// The user cluster whose node it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Its Node there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_node: Option<String>,
    /// The node of the infra cluster.
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
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Where it goes or went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// It has ended.
    #[serde(default)]
    pub completed: bool,
    /// It has ended without success.
    #[serde(default)]
    pub failed: bool,
    /// When it began, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub start: Option<String>,
    /// When it ended, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub end: Option<String>,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestHealthFinding {
    /// The finding's id; the documentation explains each.
    #[schemars(length(min = 1, max = 253))]
    pub id: String,
    /// How bad it is.
    #[schemars(extend("enum" = ["info", "warning", "critical"]))]
    pub severity: Severity,
    /// What is wrong, for people.
    #[schemars(length(max = 4096))]
    pub message: String,
}
