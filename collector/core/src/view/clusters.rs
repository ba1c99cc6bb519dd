//! Views of user clusters.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::{ClusterName, Namespace};

use crate::node_conditions::NodeConditionKind;

/// State of a user cluster.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
pub enum ClusterState {
    /// There is no `UserCluster`, or it has no kubeconfig yet.
    #[default]
    Pending,
    /// Its Nodes are being read for the first time.
    Connecting,
    /// Its Nodes are watched; or they are read from a folder.
    Ready,
    /// Its kubeconfig cannot be used, or requests to its API server fail; its last known Nodes are
    /// used.
    Unreachable,
    /// Its API server sends more data than the limits allow; its last known Nodes are used.
    Failed,
    /// Another `UserCluster` has the same Nodes, so one of them has the other's kubeconfig. Its
    /// Nodes are joined with no VM, and nothing is written to it.
    Refused,
    /// As `Ready`, but nothing is written to it: `spec.suspend`.
    Suspended,
    /// Its API server is off on purpose, as its source says; its last known Nodes are used.
    Hibernated,
}

impl ClusterState {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Connecting => "Connecting",
            Self::Ready => "Ready",
            Self::Unreachable => "Unreachable",
            Self::Failed => "Failed",
            Self::Refused => "Refused",
            Self::Suspended => "Suspended",
            Self::Hibernated => "Hibernated",
        }
    }
}

/// State of a user cluster, with a message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterStatus {
    pub state: ClusterState,
    /// Why it is not `Ready`, and what to do.
    pub message: Option<String>,
}

/// One user cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    /// Its name.
    pub name: ClusterName,
    /// Whether the inventory has its `UserCluster`; labels of VMs may name a missing one.
    pub known: bool,
    /// The namespace of its VMIs; the first by name, if it is not `known`.
    pub namespace: Namespace,
    /// State.
    pub state: ClusterState,
    /// Why it is not `Ready`, and what to do.
    pub message: Option<String>,
    /// Its VMs; if it is not `known`, those whose labels name it and that no `UserCluster` selects.
    pub vms: usize,
    /// Of these, running ones.
    pub running: usize,
    /// Of these, agents that answer.
    pub agents_up: usize,
    /// Its VMs by zone.
    pub zones: BTreeMap<String, usize>,
    /// Nodes that the user cluster has.
    pub nodes: usize,
    /// Of these, Nodes without VM.
    pub nodes_without_vm: usize,
    /// Some of its objects cannot be read: it may have more Nodes.
    #[serde(default)]
    pub partial: bool,
    /// Conditions that are written to its Nodes (`spec.nodeConditions`); none while it is
    /// suspended.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub node_conditions: BTreeSet<NodeConditionKind>,
    /// The `ClusterSource` that made its `UserCluster`; none if a person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}
