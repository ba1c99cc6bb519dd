//! The Node whose kubelet may vouch for a VM's agent.

use std::{fmt, sync::Arc};

use virtfleet_wire::ids::{ClusterName, NodeName};

/// The Node that a VM is, with what verifies its kubelet's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedNode {
    /// The VM's user cluster.
    pub cluster: ClusterName,
    /// Its Node, by the Node's own data.
    pub node: NodeName,
    /// `spec.nodeAuthorities` of the user cluster, in PEM.
    pub authorities: Arc<str>,
}

/// Why no node proof of a VM can be verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoExpectedNode {
    /// No `UserCluster` selects the VM, or several.
    NoCluster,
    /// Its `UserCluster` has no `spec.nodeAuthorities`.
    NoAuthorities(ClusterName),
    /// No Node of the cluster names the VM by its `providerID` or its name.
    NoNode(ClusterName),
}

impl fmt::Display for NoExpectedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCluster => f.write_str("no single UserCluster selects the VM"),
            Self::NoAuthorities(cluster) => {
                write!(f, "the UserCluster {cluster} has no spec.nodeAuthorities")
            }
            Self::NoNode(cluster) => write!(
                f,
                "no Node of the UserCluster {cluster} is this VM by its providerID or its name"
            ),
        }
    }
}

impl std::error::Error for NoExpectedNode {}
