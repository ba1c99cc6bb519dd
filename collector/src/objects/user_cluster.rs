//! `UserCluster`: a cluster of a tenant whose nodes are VMs of the infra cluster.

mod mla;

use std::collections::BTreeSet;

use kube::CustomResource;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::node_conditions::NodeConditionKind;

pub use self::mla::{
    BasicAuthSecret, BearerSecret, HEADER_REFUSED, HTTP_REFUSED, InfraSecretKey, InfraSecretRef, MlaSpec,
    PlacementLabelSpec, PlacementSource, REPLICA_REFUSED, RESERVED_LABELS, RemoteWriteAuth,
    RemoteWriteCompression, RemoteWriteProtocol, RemoteWriteSpec, RemoteWriteTls, RequestHeaderSpec,
    StreamLimitsSpec, is_forbidden_header,
};
use super::{Condition, LabelSelector, condition::by_type};

/// A user cluster: which VMs are its nodes, and its kubeconfig.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "virtfleet.io",
    version = "v1alpha1",
    kind = "UserCluster",
    shortname = "uc",
    category = "virtfleet",
    status = "UserClusterStatus",
    derive = "PartialEq",
    doc = "A user cluster: which VMs are its nodes, and its kubeconfig.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "VMs", type_ = "integer", json_path = ".status.vms"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(
        name = "Suspended",
        type_ = "boolean",
        json_path = ".spec.suspend",
        priority = 1
    ),
    printcolumn(
        name = "Namespace",
        type_ = "string",
        json_path = ".spec.vmis.namespace",
        priority = 1
    ),
    printcolumn(
        name = "MLA",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='MlaConfigured')].status",
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
pub struct UserClusterSpec {
    /// Selects the VirtualMachineInstances that are its nodes.
    pub vmis: VmisRef,
    /// Its kubeconfig. Absent: the cluster is Pending; its VMs are shown, and the collector does
    /// not connect to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<KubeconfigRef>,
    /// Do not write to the user cluster, except to remove the conditions of its Nodes; the plans
    /// are shown.
    #[serde(default)]
    pub suspend: bool,
    /// The relay through which the agents of its VMs are dialled. Absent: they are dialled
    /// directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelayRef>,
    /// The authorities of its kubelets' client certificates, in PEM: those of the API server's
    /// `--client-ca-file`. With them, an agent that connects to the collector may show a node
    /// proof. Absent: node proofs of this cluster are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65_536))]
    pub node_authorities: Option<String>,
    /// Conditions of its VMs' health that the collector also writes to `status.conditions` of their
    /// Nodes, as `virtfleet.io/DisksReady` and so on. Absent: none. It needs the right to patch
    /// `nodes/status` in the user cluster.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(transform = as_set, length(max = 5))]
    pub node_conditions: BTreeSet<NodeConditionKind>,
    /// Where the metrics of its VMs are sent. Absent: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mla: Option<MlaSpec>,
}

/// Sets the list type: a set of names. `uniqueItems` is forbidden in CustomResourceDefinitions.
pub(super) fn as_set(schema: &mut Schema) {
    schema.remove("uniqueItems");
    schema.insert("x-kubernetes-list-type".to_owned(), "set".into());
}

/// Reference to a relay: `virtfleet-collector relay`, running in the tenant's network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelayRef {
    /// Its `host:port`, e.g. `virtfleet-relay.cluster-a.svc:10915`. A name is resolved for each
    /// connection. The relay passes bytes below TLS: it can neither read nor forge what agents
    /// send.
    #[schemars(
        length(min = 3, max = 261),
        regex(pattern = r"^([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$")
    )]
    pub address: String,
}

/// Selects the VirtualMachineInstances that are a user cluster's nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VmisRef {
    /// Their namespace in the infra cluster. Several user clusters may share it, each with its own
    /// selector.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub namespace: String,
    /// Selects VirtualMachineInstances of that namespace by label; absent selects all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// Reference to a kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigRef {
    /// The Secret with the kubeconfig. It is watched, and a new kubeconfig is used at once. The
    /// collector rejects a kubeconfig that runs a program, names a file or a proxy, skips the
    /// verification of TLS, or whose server is not of the form https://host:port.
    pub secret: SecretKeyRef,
}

/// A key of a Secret in the infra cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// The Secret's namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in the Secret.
    #[serde(default = "default_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn default_key() -> String {
    "kubeconfig".to_owned()
}

/// Status of a user cluster. Written only on change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserClusterStatus {
    /// The generation of the spec that was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// State of the connection to its API server.
    #[serde(default)]
    pub phase: ClusterPhase,
    /// Why it is not Ready, and what to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub message: String,
    /// Ready: its Nodes are watched. NodeConditionsWritten: the conditions in spec.nodeConditions
    /// can be written to its Nodes; absent if there are none. MlaConfigured: spec.mla and its
    /// Secrets are used; absent without spec.mla.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = by_type)]
    pub conditions: Vec<Condition>,
    /// Fingerprint of the kubeconfig with which its Nodes are read: the first 16 hexadecimal digits
    /// of its SHA-256 hash. Absent without a usable kubeconfig.
    // Never omitted, so that a merge patch removes it.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub kubeconfig_fingerprint: Option<String>,
    /// Number of VMs that are its nodes.
    #[serde(default)]
    pub vms: i64,
    /// Number of its Nodes.
    #[serde(default)]
    pub nodes: i64,
}

/// State of the connection to a user cluster's API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ClusterPhase {
    /// There is no kubeconfig yet, or its Nodes have not been read yet.
    #[default]
    Pending,
    /// Its Nodes are watched.
    Ready,
    /// Its API server does not answer correctly; its last known Nodes are kept.
    Unreachable,
    /// It exceeds the limits on one user cluster; its last known Nodes are kept.
    Failed,
    /// Its Nodes are watched, but nothing is written.
    Suspended,
    /// Its API server is off on purpose, as its ClusterSource says; its last known Nodes are kept.
    Hibernated,
}

impl ClusterPhase {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Ready => "Ready",
            Self::Unreachable => "Unreachable",
            Self::Failed => "Failed",
            Self::Suspended => "Suspended",
            Self::Hibernated => "Hibernated",
        }
    }
}
