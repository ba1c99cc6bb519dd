//! `LabelPropagation`: which labels of infra nodes user-cluster Nodes get.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::labels::policy::{Mode, Takeover};

use super::{Condition, LabelSelector, condition::by_type};

/// Which labels of the infra node a VM runs on are kept true on its Node in the user cluster. Several objects compose.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "virtfleet.io",
    version = "v1alpha1",
    kind = "LabelPropagation",
    shortname = "lp",
    category = "virtfleet",
    status = "LabelPropagationStatus",
    derive = "PartialEq",
    doc = "Which labels of the infra node a VM runs on are kept true on its Node in the user cluster.",
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
    /// Which user clusters, by the labels of their UserCluster objects; absent selects all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_selector: Option<LabelSelector>,
    /// What would be written is shown and never written.
    #[serde(default)]
    pub dry_run: bool,
    /// Which labels.
    #[schemars(length(min = 1, max = 256))]
    pub labels: Vec<LabelRule>,
}

/// [`virtfleet_collector_core::labels::guard::never_applies`] in CEL.
const TARGET_MAY_BE_WRITTEN: &str = "[has(self.target) ? self.target : has(self.key) ? self.key : \
    has(self.prefix) ? self.prefix : ''].all(t, !t.matches('^([^/]*[.])?(kubernetes|k8s)[.]io/') || \
    t.matches('^([^/]*[.])?node-restriction[.]kubernetes[.]io/') || \
    ['topology.kubernetes.io/region', 'topology.kubernetes.io/zone', 'failure-domain.beta.kubernetes.io/region', \
    'failure-domain.beta.kubernetes.io/zone'].exists(p, has(self.prefix) ? p.startsWith(t) : p == t))";

/// One label, or all whose keys begin alike. Exactly one of key and prefix is set.
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
    /// What the keys of the infra node's labels begin with, e.g. rack.example.com/.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub prefix: Option<String>,
    /// The key (of a key) or prefix (of a prefix) on the user cluster's Node; absent: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub target: Option<String>,
    /// What happens when the infra node's value changes or the VM moves; absent: FollowIfSafe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// What happens to a value that somebody else wrote; absent: IfPlacementMatches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takeover: Option<Takeover>,
}

/// What became of a LabelPropagation. Written on change only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelPropagationStatus {
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// UserClusters that it selects.
    #[serde(default)]
    pub clusters: i64,
    /// Nodes of these about which it says something.
    #[serde(default)]
    pub nodes: i64,
    /// Nodes that are as it asks.
    #[serde(default)]
    pub in_sync: i64,
    /// Nodes that differ: virtfleetctl labels diff says why.
    #[serde(default)]
    pub drifted: i64,
    /// Nodes of the drifted ones where something depends on the present value, or it is not known whether.
    #[serde(default)]
    pub r#unsafe: i64,
    /// Accepted: every rule can be used. Conflicted: another object asks for something else for the same key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = by_type)]
    pub conditions: Vec<Condition>,
}
