//! Leases of kubelets.

use virtfleet_wire::ids::{ClusterName, NodeName};

/// The Leases by which the kubelets of a cluster say that they live (`kube-node-lease`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLeases {
    /// The user cluster; none: the infra cluster.
    pub cluster: Option<ClusterName>,
    /// All of them; none can be read if it is empty.
    pub leases: Vec<NodeLease>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLease {
    pub node: NodeName,
    /// `spec.renewTime` in milliseconds since 1970, by the kubelet's clock.
    pub renewed_ms: u64,
    /// `spec.leaseDurationSeconds` in milliseconds; none if it is not set.
    pub lasts_ms: Option<u64>,
}
