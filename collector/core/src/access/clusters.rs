//! User clusters as a tenant sees them.

use std::collections::{BTreeMap, BTreeSet};

use virtfleet_wire::ids::{ClusterName, Namespace};

use super::VisibleFleet;
use crate::{
    snapshot::{count, without_cluster},
    view::{ClusterState, ClusterView, VmView},
};

/// The user clusters in the scope, and those that only labels of visible VMs name. The latter are
/// counted from these VMs alone, whether or not a hidden `UserCluster` has the name.
pub(super) fn of_vms<'a>(
    fleet: &VisibleFleet<'_>,
    vms: impl Iterator<Item = &'a VmView>,
) -> Vec<ClusterView> {
    let known = fleet.whole.clusters.iter();
    let known = known.filter(|cluster| fleet.has_cluster(&cluster.name));
    let mut views: BTreeMap<ClusterName, ClusterView> =
        known.map(|view| (view.name.clone(), view.clone())).collect();
    let mut labelled: BTreeMap<&ClusterName, (BTreeSet<&str>, BTreeSet<&Namespace>)> = BTreeMap::new();
    for vm in vms.filter(|vm| vm.cluster.is_none()) {
        let Some(label) = &vm.cluster_label else { continue };
        if fleet.has_cluster(&label.cluster) {
            continue;
        }
        let view = views
            .entry(label.cluster.clone())
            .or_insert_with(|| named_by_labels(&label.cluster, vm));
        count(view, vm);
        let (keys, namespaces) = labelled.entry(&label.cluster).or_default();
        keys.insert(label.key);
        namespaces.insert(&vm.namespace);
    }
    for (name, (keys, namespaces)) in labelled {
        if let Some(view) = views.get_mut(name) {
            view.message = Some(without_cluster(&keys, &namespaces));
        }
    }
    views.into_values().collect()
}

/// A cluster without VMs and Nodes: its Nodes may be those of another tenant.
fn named_by_labels(name: &ClusterName, vm: &VmView) -> ClusterView {
    ClusterView {
        name: name.clone(),
        known: false,
        namespace: vm.namespace.clone(),
        state: ClusterState::Pending,
        message: None,
        vms: 0,
        running: 0,
        agents_up: 0,
        zones: BTreeMap::new(),
        nodes: 0,
        nodes_without_vm: 0,
        partial: false,
        node_conditions: BTreeSet::new(),
        source: None,
    }
}
