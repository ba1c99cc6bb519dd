//! Views of hosts and user clusters, counted from the views of all VMs.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
};

use virtfleet_wire::ids::{ClusterName, Namespace, NodeName};

use crate::{
    cluster_source::SOURCE_LABEL,
    facts::{InfraNode, UserCluster},
    store::Store,
    view::{AgentStatus, ClusterState, ClusterStatus, ClusterView, Gaps, HostView, VmState, VmView},
};

/// Every infra node that is in the inventory or that a VMI names, by name.
pub(crate) fn hosts(store: &Store) -> Vec<HostView> {
    let names: BTreeSet<&NodeName> = store.infra_nodes.keys().chain(store.vms_by_host.keys()).collect();
    let mut views: HashMap<&NodeName, (HostView, BTreeSet<&ClusterName>)> = names
        .iter()
        .map(|name| (*name, (empty_host(store, name), BTreeSet::new())))
        .collect();
    // One walk over the VMs in order: a lookup by host costs several times as much.
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
        cordoned: node.is_some_and(|node| node.unschedulable),
        region: node.and_then(InfraNode::region).map(str::to_owned),
        zone: node.and_then(InfraNode::zone).map(str::to_owned),
        vms: 0,
        agents_up: 0,
        agents_silent: 0,
        clusters: Vec::new(),
    }
}

/// Every user cluster, by name: those with a `UserCluster`, and those that only labels of VMs name.
/// `statuses`: see [`crate::index::FleetIndex::set_cluster_statuses`].
pub(crate) fn clusters(
    store: &Store,
    statuses: Option<&BTreeMap<ClusterName, ClusterStatus>>,
) -> Vec<ClusterView> {
    let nodes = |name: &ClusterName| store.user_nodes.get(name).map_or(0, BTreeMap::len);
    let mut views: BTreeMap<&ClusterName, ClusterView> = store
        .clusters
        .iter()
        .map(|(name, cluster)| {
            let ClusterStatus { state, message } = cluster_status(store, cluster, statuses);
            let view = ClusterView {
                known: true,
                state,
                message,
                node_conditions: cluster.requested_conditions(),
                source: cluster.labels.get(SOURCE_LABEL).map(str::to_owned),
                ..empty_cluster(name, &cluster.namespace, nodes(name))
            };
            (name, view)
        })
        .collect();
    let mut labelled: BTreeMap<&ClusterName, (BTreeSet<&str>, BTreeSet<&Namespace>)> = BTreeMap::new();
    for entry in store.vms.values() {
        let Some(vm) = &entry.view else { continue };
        if let Some(cluster) = &vm.cluster {
            if let Some(view) = views.get_mut(cluster) {
                count(view, vm);
            }
        } else if let Some(cluster_label) = &entry.keys.cluster_label
            && !store.clusters.contains_key(&cluster_label.cluster)
        {
            let name = &cluster_label.cluster;
            let view = views
                .entry(name)
                .or_insert_with(|| empty_cluster(name, &vm.namespace, nodes(name)));
            count(view, vm);
            let (keys, namespaces) = labelled.entry(name).or_default();
            keys.insert(cluster_label.key);
            namespaces.insert(&vm.namespace);
        }
    }
    for (name, (keys, namespaces)) in labelled {
        if let Some(view) = views.get_mut(name) {
            view.message = Some(without_cluster(&keys, &namespaces));
        }
    }
    views.into_values().collect()
}

/// Sets which clusters are partial. A hibernated one has no VMs, so no Node is missing. If VMs run
/// nevertheless, their Nodes cannot be read, and no finding says so.
pub(crate) fn set_partial(clusters: &mut [ClusterView], gaps: &mut Gaps) {
    for cluster in clusters {
        if cluster.state == ClusterState::Hibernated && cluster.running > 0 {
            gaps.clusters.insert(cluster.name.clone());
        }
        cluster.partial = gaps.clusters.contains(&cluster.name);
    }
}

/// The status of a user cluster; see [`clusters`].
pub(crate) fn cluster_status(
    store: &Store,
    cluster: &UserCluster,
    statuses: Option<&BTreeMap<ClusterName, ClusterStatus>>,
) -> ClusterStatus {
    if store.shared_nodes.with(&cluster.name).next().is_some() {
        // Its tenant sees this, and may not see the others.
        let mut message = "another UserCluster has the same Nodes, so the kubeconfig of one of them leads to the other's API \
                           server: no Node is joined with a VM, and nothing is written"
            .to_owned();
        // It may be mended, and not be read since.
        let own = statuses.and_then(|statuses| statuses.get(&cluster.name));
        let unread = [
            ClusterState::Unreachable,
            ClusterState::Failed,
            ClusterState::Pending,
            ClusterState::Hibernated,
        ];
        if let Some(own) = own.filter(|own| unread.contains(&own.state)) {
            let why = own.message.as_deref().unwrap_or(own.state.as_str());
            write!(
                message,
                "; its Nodes are those that were read last, because it cannot be read: {why}"
            )
            .ok();
        }
        return ClusterStatus {
            state: ClusterState::Refused,
            message: Some(message),
        };
    }
    let of_folder = |state| ClusterStatus { state, message: None };
    match statuses {
        Some(statuses) => statuses.get(&cluster.name).cloned().unwrap_or_default(),
        None if cluster.suspend => of_folder(ClusterState::Suspended),
        None => of_folder(ClusterState::Ready),
    }
}

/// The message of a cluster that only labels of VMs name: the keys of these labels, and the VMs'
/// namespaces.
pub(crate) fn without_cluster(keys: &BTreeSet<&str>, namespaces: &BTreeSet<&Namespace>) -> String {
    let keys = keys.iter().copied().collect::<Vec<_>>().join(", ");
    let mut message = format!("there is no UserCluster; VMs name this cluster in their labels {keys}");
    if namespaces.len() > 1 {
        let names: Vec<_> = namespaces.iter().map(|name| name.as_str()).collect();
        message.push_str(", in the namespaces ");
        message.push_str(&names.join(", "));
    }
    message
}

/// A view without VMs and without `UserCluster`.
pub(crate) fn empty_cluster(name: &ClusterName, namespace: &Namespace, nodes: usize) -> ClusterView {
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
        node_conditions: BTreeSet::new(),
        source: None,
    }
}

pub(crate) fn count(view: &mut ClusterView, vm: &VmView) {
    view.vms += 1;
    // A migrating VM still runs.
    view.running += usize::from(matches!(vm.state, VmState::Running | VmState::Migrating));
    view.agents_up += usize::from(vm.agent.status == AgentStatus::Up);
    if let Some(zone) = &vm.zone {
        match view.zones.get_mut(zone) {
            Some(count) => *count += 1,
            None => drop(view.zones.insert(zone.clone(), 1)),
        }
    }
    // A Node is joined with one VM at most.
    view.nodes_without_vm = view
        .nodes_without_vm
        .saturating_sub(usize::from(vm.user_node.is_some()));
}
