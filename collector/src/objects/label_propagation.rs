//! `LabelPropagation`: which labels of infra nodes are copied to Nodes of user clusters.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::labels::policy::{Mode, Takeover};

use super::{Condition, LabelSelector, condition::by_type};

/// Labels that the collector copies from the infra node of a VM to its Node in the user cluster,
/// and keeps up to date. Several objects compose.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "virtfleet.io",
    version = "v1alpha1",
    kind = "LabelPropagation",
    shortname = "lp",
    category = "virtfleet",
    status = "LabelPropagationStatus",
    derive = "PartialEq",
    doc = "Labels that the collector copies from the infra node of a VM to its Node in the user cluster.",
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Accepted')].status"
    ),
    printcolumn(
        name = "Conflicted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Conflicted')].status"
    ),
    printcolumn(name = "Clusters", type_ = "integer", json_path = ".status.clusters"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "In-Sync", type_ = "integer", json_path = ".status.inSync"),
    printcolumn(name = "Drifted", type_ = "integer", json_path = ".status.drifted"),
    printcolumn(name = "Unsafe", type_ = "integer", json_path = ".status.unsafe"),
    printcolumn(name = "DryRun", type_ = "boolean", json_path = ".spec.dryRun"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct LabelPropagationSpec {
    /// Selects user clusters by the labels of their UserCluster objects; absent selects all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_selector: Option<LabelSelector>,
    /// Plan and show the changes, but write nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// The labels to copy.
    #[schemars(length(min = 1, max = 256))]
    pub labels: Vec<LabelRule>,
}

/// [`virtfleet_collector_core::labels::guard::never_applies`] as a CEL expression.
const TARGET_MAY_BE_WRITTEN: &str = "[has(self.target) ? self.target : has(self.key) ? self.key : \
    has(self.prefix) ? self.prefix : ''].all(t, !t.matches('^([^/]*[.])?(kubernetes|k8s)[.]io/') || \
    t.matches('^([^/]*[.])?node-restriction[.]kubernetes[.]io/') || \
    ['topology.kubernetes.io/region', 'topology.kubernetes.io/zone', 'failure-domain.beta.kubernetes.io/region', \
    'failure-domain.beta.kubernetes.io/zone'].exists(p, has(self.prefix) ? p.startsWith(t) : p == t))";

/// One label, or all labels with a key prefix. Exactly one of key and prefix is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend(
    "oneOf" = [{"required": ["key"]}, {"required": ["prefix"]}],
    "x-kubernetes-validations" = [{
        "rule": "has(self.key) != has(self.prefix)",
        "message": "exactly one of key and prefix must be set",
    }, {
        "rule": TARGET_MAY_BE_WRITTEN,
        "message": "the target is reserved for Kubernetes and is never written; set another target, e.g. virtfleet.io/rack",
    }],
))]
#[serde(rename_all = "camelCase")]
pub struct LabelRule {
    /// The key of the infra node's label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub key: Option<String>,
    /// The prefix of the keys of the infra node's labels, e.g. rack.example.com/.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub prefix: Option<String>,
    /// The key (for a key) or prefix (for a prefix) on the user cluster's Node; absent: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub target: Option<String>,
    /// What happens when the infra node's value changes or the VM moves; absent: FollowIfSafe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// What happens to a value of another writer; absent: IfPlacementMatches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takeover: Option<Takeover>,
}

/// Status of a LabelPropagation. Written only on change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelPropagationStatus {
    /// The generation of the spec that was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of UserClusters that it selects.
    #[serde(default)]
    pub clusters: i64,
    /// Number of Nodes in these clusters to which a rule applies.
    #[serde(default)]
    pub nodes: i64,
    /// Number of Nodes whose labels have their desired values.
    #[serde(default)]
    pub in_sync: i64,
    /// Number of Nodes whose labels differ; `virtfleetctl labels diff` shows why.
    #[serde(default)]
    pub drifted: i64,
    /// Number of drifted Nodes on which an object depends on the present value, or may depend on
    /// it.
    #[serde(default)]
    pub r#unsafe: i64,
    /// Accepted: every rule is valid. Conflicted: another object has a different rule for the same
    /// key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = by_type)]
    pub conditions: Vec<Condition>,
}
