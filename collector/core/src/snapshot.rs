//! Counts hosts and clusters over the settled views of all VMs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use virtfleet_wire::ids::{ClusterName, NodeName};

use crate::{
    facts::InfraNode,
    store::Store,
    view::{AgentStatus, ClusterView, HostView, VmState},
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

/// Every user cluster, by name.
pub(crate) fn clusters(store: &Store) -> Vec<ClusterView> {
    let mut views: BTreeMap<&ClusterName, ClusterView> = store
        .clusters
        .iter()
        .map(|(name, cluster)| {
            let nodes = store.user_nodes.get(name).map_or(0, BTreeMap::len);
            let view = ClusterView {
                name: name.clone(),
                namespace: cluster.namespace.clone(),
                vms: 0,
                running: 0,
                agents_up: 0,
                zones: BTreeMap::new(),
                nodes,
                nodes_without_vm: nodes,
            };
            (name, view)
        })
        .collect();
    for vm in store.vms.values().filter_map(|entry| entry.view.as_ref()) {
        let Some(view) = vm.cluster.as_ref().and_then(|cluster| views.get_mut(cluster)) else {
            continue;
        };
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
    views.into_values().collect()
}
