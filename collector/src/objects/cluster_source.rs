//! `ClusterSource`: a platform whose clusters become UserClusters.

use std::collections::{BTreeMap, BTreeSet};

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::{cluster_source::SourceKind, node_conditions::NodeConditionKind};

use super::{Condition, KubeconfigRef, LabelSelector, MlaSpec, condition::by_type, user_cluster::as_set};

/// A platform whose clusters become UserClusters.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "virtfleet.io",
    version = "v1alpha1",
    kind = "ClusterSource",
    shortname = "csrc",
    category = "virtfleet",
    status = "ClusterSourceStatus",
    derive = "PartialEq",
    doc = "A platform whose clusters become UserClusters.",
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.kind"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Found", type_ = "integer", json_path = ".status.found"),
    printcolumn(name = "Selected", type_ = "integer", json_path = ".status.selected"),
    printcolumn(name = "UserClusters", type_ = "integer", json_path = ".status.userClusters"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "self.kind == oldSelf.kind", "message": "kind cannot be changed; create another ClusterSource" },
    {
        "rule": "self.kind != 'ClusterAPI' || self.credentials != 'Viewer'",
        "message": "Cluster API has only kubeconfigs of admins: set credentials to Account or Admin",
    },
    {
        "rule": "self.kind != 'Gardener' || (has(self.vms) && has(self.vms.namespace))",
        "message": "a garden does not say where the VMs are: set vms.namespace",
    },
    {
        "rule": "self.kind == 'Gardener' || !has(self.expirationSeconds)",
        "message": "only kubeconfigs of a garden have expirationSeconds",
    },
    {
        "rule": "self.kind != 'KKP' || !has(self.namespace)",
        "message": "Clusters of KKP have no namespace: use selector or namePattern",
    },
]))]
#[serde(rename_all = "camelCase")]
pub struct ClusterSourceSpec {
    /// The platform.
    pub kind: SourceKind,
    /// A kubeconfig of the platform's API server: the seed, the management cluster, the garden.
    /// Absent: the infra cluster itself. The same rules apply to it as to those of UserClusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<KubeconfigRef>,
    /// Only clusters of this namespace of the source. Absent: all namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Only clusters with these labels. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// Only clusters whose whole name matches this regular expression. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub name_pattern: Option<String>,
    /// Which credentials the UserClusters get. With Viewer, the collector reads Nodes and can write
    /// no labels.
    #[serde(default)]
    pub credentials: SourceCredentials,
    /// Validity of kubeconfigs that are requested from a garden, seconds; they are renewed after
    /// half of it. Absent: 6 hours. The garden may shorten it. Without effect on Account, whose
    /// tokens are valid for 30 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 600, max = 86_400))]
    pub expiration_seconds: Option<u32>,
    /// Where the VMs are, if it is not where the platform usually has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vms: Option<SourceVms>,
    /// Maximum UserClusters. More clusters are skipped.
    #[serde(default = "default_max_clusters")]
    #[schemars(range(min = 1, max = 5000))]
    pub max_clusters: u32,
    /// The namespace of the infra cluster for copied kubeconfigs. The collector writes to no other.
    #[serde(default = "default_secret_namespace")]
    #[schemars(length(min = 1, max = 63))]
    pub secret_namespace: String,
    /// Make, change and remove no UserCluster. Kubeconfigs and accounts of those that exist are
    /// renewed.
    #[serde(default)]
    pub suspend: bool,
    /// Fields of the UserClusters.
    #[serde(default)]
    pub template: UserClusterTemplate,
}

fn default_max_clusters() -> u32 {
    500
}

fn default_secret_namespace() -> String {
    "virtfleet-kubeconfigs".to_owned()
}

/// Which credentials the UserClusters of a source get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum SourceCredentials {
    /// A copy of one that reads: viewer-kubeconfig of KKP, viewerkubeconfig of Gardener.
    #[default]
    Viewer,
    /// An account of the collector's own in the user cluster, with the rights that it needs. It is
    /// made with the kubeconfig of an admin, which is not stored.
    Account,
    /// A copy of one of an admin. The admission policy of virtfleet does not limit it.
    Admin,
}

impl SourceCredentials {
    /// The name in a ClusterSource.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "Viewer",
            Self::Account => "Account",
            Self::Admin => "Admin",
        }
    }
}

/// Where the VMs of a source's clusters are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceVms {
    /// Their namespace in the infra cluster. Several clusters may share it: their VMs are selected
    /// by the label that the platform sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub namespace: Option<String>,
}

/// Fields of the UserClusters of a source. Changes apply to all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserClusterTemplate {
    /// Labels of the UserClusters, which LabelPropagations select by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Keys of labels that are copied from the source's cluster, if it has them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(transform = as_set, length(max = 32))]
    pub copy_labels: BTreeSet<String>,
    /// spec.suspend of the UserClusters.
    #[serde(default)]
    pub suspend: bool,
    /// spec.nodeConditions of the UserClusters.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(transform = as_set, length(max = 5))]
    pub node_conditions: BTreeSet<NodeConditionKind>,
    /// spec.mla of the UserClusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mla: Option<MlaSpec>,
}

/// Status of a ClusterSource. Written only on change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSourceStatus {
    /// The generation of the spec that was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of clusters of the source.
    #[serde(default)]
    pub found: i64,
    /// Number of clusters that selector, namePattern and platform select.
    #[serde(default)]
    pub selected: i64,
    /// Number of UserClusters of the source.
    #[serde(default)]
    pub user_clusters: i64,
    /// Clusters that are selected and whose UserCluster is not made or not changed, or whose
    /// account fails, with the reason; at most 20.
    #[serde(default)]
    #[schemars(length(max = 20))]
    pub skipped: Vec<SkippedSourceCluster>,
    /// Ready: the last list was complete and everything was written. Its message has the last
    /// error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = by_type)]
    pub conditions: Vec<Condition>,
}

/// A cluster whose UserCluster is not made or not changed, or whose account fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkippedSourceCluster {
    /// Its name in the source, with its namespace.
    #[schemars(length(max = 320))]
    pub cluster: String,
    /// Why.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// Details, for example the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,
}
