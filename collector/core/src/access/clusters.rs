//! User clusters as a tenant sees them.

use std::collections::{BTreeMap, BTreeSet};

use virtfleet_wire::ids::{ClusterName, Namespace};

use super::VisibleFleet;
use crate::{
    snapshot::{count, empty_cluster, without_cluster},
    view::{ClusterView, VmView},
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
            // Without Nodes, which may be those of another tenant.
            .or_insert_with(|| empty_cluster(&label.cluster, &vm.namespace, 0));
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
