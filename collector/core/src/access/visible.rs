//! What of a fleet is visible in a scope.

use std::collections::BTreeSet;

use virtfleet_wire::ids::{ClusterName, Namespace, VmKey};

use super::AccessScope;
use crate::view::FleetSnapshot;

/// A fleet as seen in a scope.
#[derive(Debug, Clone)]
pub struct VisibleFleet<'a> {
    pub(super) whole: &'a FleetSnapshot,
    pub(super) scope: &'a AccessScope,
    /// User clusters in the scope, with a `UserCluster`.
    clusters: BTreeSet<&'a ClusterName>,
}

impl<'a> VisibleFleet<'a> {
    /// The part of `whole` that `scope` has.
    pub fn new(whole: &'a FleetSnapshot, scope: &'a AccessScope) -> Self {
        let clusters = whole.clusters.iter().filter(|cluster| scope.has_cluster(cluster));
        Self {
            whole,
            scope,
            clusters: clusters.map(|cluster| &cluster.name).collect(),
        }
    }

    /// Whether a VM is visible; false for an unknown one.
    pub fn has_vm(&self, key: &VmKey) -> bool {
        self.whole.vms.get(key).is_some_and(|vm| self.scope.has_vm(vm))
    }

    /// Whether a user cluster is visible; false for one without `UserCluster`.
    pub fn has_cluster(&self, name: &ClusterName) -> bool {
        self.clusters.contains(name)
    }

    /// Whether all VMs of a namespace are visible.
    pub fn has_namespace(&self, namespace: &Namespace) -> bool {
        self.scope.has_namespace(namespace)
    }
}
