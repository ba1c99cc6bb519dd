//! Counts hosts and clusters over the settled views of all VMs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use virtfleet_wire::ids::{ClusterName, Namespace, NodeName};

use crate::{
    facts::{InfraNode, UserCluster},
    store::Store,
    view::{AgentStatus, ClusterStand, ClusterState, ClusterView, HostView, VmState, VmView},
};

/// Every infra node that the inventory has or that a VMI names, by name.
pub(crate) fn hosts(store: &Store) -> Vec<HostView> {
    let names: BTreeSet<&NodeName> = store.infra_nodes.keys().chain(store.vms_by_host.keys()).collect();
    let mut views: HashMap<&NodeName, (HostView, BTreeSet<&ClusterName>)> = names
        .iter()
        .map(|name| (*name, (empty_host(store, name), BTreeSet::new())))
        .collect();
    // One walk over the VMs in their order: looking each up by host costs several times as much.
    for vm in store.vms.values().filter_map(|entry| entry.view.as_ref()) {
        let host = vm.infra_node.as_ref();
        let Some((host, clusters)) = host.and_then(|host| views.get_mut(host)) else {
            continue;
        };
        host.vms += 1;
        host.agents_up += usize::from(vm.agent.status == AgentStatus::Up);
        host.agents_silent += usize::from(vm.agent.status == AgentStatus::Silent);
        clusters.extend(&vm.cluster);
    }
    let finish = |(mut host, clusters): (HostView, BTreeSet<&ClusterName>)| {
        host.clusters = clusters.into_iter().cloned().collect();
        host
    };
    names
        .into_iter()
        .filter_map(|name| views.remove(name).map(finish))
        .collect()
}

fn empty_host(store: &Store, name: &NodeName) -> HostView {
    let node = store.infra_nodes.get(name);
    HostView {
        name: name.clone(),
        known: node.is_some(),
        ready: node.and_then(|node| node.ready),
        region: node.and_then(InfraNode::region).map(str::to_owned),
        zone: node.and_then(InfraNode::zone).map(str::to_owned),
        vms: 0,
        agents_up: 0,
        agents_silent: 0,
        clusters: Vec::new(),
    }
}

/// Every user cluster, by name: those that have a `UserCluster`, and those that VMs wish for which no `UserCluster` selects.
/// `stands`: see [`crate::index::FleetIndex::set_cluster_stands`].
pub(crate) fn clusters(
    store: &Store,
    stands: Option<&BTreeMap<ClusterName, ClusterStand>>,
) -> Vec<ClusterView> {
    let mut views: BTreeMap<&ClusterName, ClusterView> = store
        .clusters
        .iter()
        .map(|(name, cluster)| {
            let ClusterStand { state, message } = stand(cluster, stands);
            let view = ClusterView {
                known: true,
                state,
                message,
                ..empty_cluster(store, name, &cluster.namespace)
            };
            (name, view)
        })
        .collect();
    let mut wishes: BTreeMap<&ClusterName, (BTreeSet<&str>, BTreeSet<&Namespace>)> = BTreeMap::new();
    for entry in store.vms.values() {
        let Some(vm) = &entry.view else { continue };
        if let Some(cluster) = &vm.cluster {
            if let Some(view) = views.get_mut(cluster) {
                count(view, vm);
            }
        } else if let Some(wish) = &entry.keys.wish
            && !store.clusters.contains_key(&wish.cluster)
        {
            let view = views
                .entry(&wish.cluster)
                .or_insert_with(|| empty_cluster(store, &wish.cluster, &vm.namespace));
            count(view, vm);
            let (keys, namespaces) = wishes.entry(&wish.cluster).or_default();
            keys.insert(wish.key);
            namespaces.insert(&vm.namespace);
        }
    }
    for (name, (keys, namespaces)) in wishes {
        if let Some(view) = views.get_mut(name) {
            view.message = Some(without_cluster(&keys, &namespaces));
        }
    }
    views.into_values().collect()
}

fn stand(cluster: &UserCluster, stands: Option<&BTreeMap<ClusterName, ClusterStand>>) -> ClusterStand {
    let of_folder = |state| ClusterStand { state, message: None };
    match stands {
        Some(stands) => stands.get(&cluster.name).cloned().unwrap_or_default(),
        None if cluster.suspend => of_folder(ClusterState::Suspended),
        None => of_folder(ClusterState::Ready),
    }
}

fn without_cluster(keys: &BTreeSet<&str>, namespaces: &BTreeSet<&Namespace>) -> String {
    let keys = keys.iter().copied().collect::<Vec<_>>().join(", ");
    let mut message = format!("there is no UserCluster; VMs name it by {keys}");
    if namespaces.len() > 1 {
        let names: Vec<_> = namespaces.iter().map(|name| name.as_str()).collect();
        message.push_str(", in the namespaces ");
        message.push_str(&names.join(", "));
    }
    message
}

/// Without VMs, and as if it had no `UserCluster`.
fn empty_cluster(store: &Store, name: &ClusterName, namespace: &Namespace) -> ClusterView {
    let nodes = store.user_nodes.get(name).map_or(0, BTreeMap::len);
    ClusterView {
        name: name.clone(),
        known: false,
        namespace: namespace.clone(),
        state: ClusterState::Pending,
        message: None,
        vms: 0,
        running: 0,
        agents_up: 0,
        zones: BTreeMap::new(),
        nodes,
        nodes_without_vm: nodes,
        partial: false,
    }
}

fn count(view: &mut ClusterView, vm: &VmView) {
    view.vms += 1;
    // A VM that moves has not stopped running.
    view.running += usize::from(matches!(vm.state, VmState::Running | VmState::Migrating));
    view.agents_up += usize::from(vm.agent.status == AgentStatus::Up);
    if let Some(zone) = &vm.zone {
        match view.zones.get_mut(zone) {
            Some(count) => *count += 1,
            None => drop(view.zones.insert(zone.clone(), 1)),
        }
    }
    // The join gives a Node to one VM at the most.
    view.nodes_without_vm = view
        .nodes_without_vm
        .saturating_sub(usize::from(vm.user_node.is_some()));
}
