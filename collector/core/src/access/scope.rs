//! The part of the fleet that a caller may see.

use std::collections::BTreeSet;

use virtfleet_wire::ids::{ClusterName, Namespace};

use crate::view::{ClusterView, VmView};

/// The part of the fleet that a caller may see.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AccessScope {
    All,
    /// The VMs of these namespaces and of these user clusters, and what belongs to them.
    Only {
        /// Namespaces of the infra cluster.
        namespaces: BTreeSet<Namespace>,
        clusters: BTreeSet<ClusterName>,
    },
}

impl AccessScope {
    /// A scope without any VM.
    pub const fn nothing() -> Self {
        Self::Only {
            namespaces: BTreeSet::new(),
            clusters: BTreeSet::new(),
        }
    }

    /// The VMs of these namespaces.
    pub fn of_namespaces(namespaces: impl IntoIterator<Item = Namespace>) -> Self {
        Self::Only {
            namespaces: namespaces.into_iter().collect(),
            clusters: BTreeSet::new(),
        }
    }

    /// Whether it has everything.
    pub fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Whether it has nothing.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::All => false,
            Self::Only { namespaces, clusters } => namespaces.is_empty() && clusters.is_empty(),
        }
    }

    /// Whether it has all VMs of a namespace.
    pub fn has_namespace(&self, namespace: &Namespace) -> bool {
        match self {
            Self::All => true,
            Self::Only { namespaces, .. } => namespaces.contains(namespace),
        }
    }

    /// Whether it has a VM.
    pub fn has_vm(&self, vm: &VmView) -> bool {
        match self {
            Self::All => true,
            Self::Only { namespaces, clusters } => {
                namespaces.contains(&vm.namespace)
                    || vm.cluster.as_ref().is_some_and(|name| clusters.contains(name))
            }
        }
    }

    /// Whether it has a user cluster. A cluster without `UserCluster` has no owner: labels of VMs
    /// in any namespace may name it.
    pub fn has_cluster(&self, cluster: &ClusterView) -> bool {
        match self {
            Self::All => true,
            Self::Only { namespaces, clusters } => {
                cluster.known && (namespaces.contains(&cluster.namespace) || clusters.contains(&cluster.name))
            }
        }
    }
}
