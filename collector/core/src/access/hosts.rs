//! Hosts as a tenant sees them: those on which it has VMs, counted from these VMs alone.

use std::collections::{BTreeMap, BTreeSet};

use virtfleet_wire::ids::{ClusterName, NodeName};

use crate::view::{AgentStatus, FleetSnapshot, HostView, VmView};

/// Hosts of the visible VMs.
pub(super) fn of_vms<'a>(whole: &FleetSnapshot, vms: impl Iterator<Item = &'a VmView>) -> Vec<HostView> {
    let mut counted: BTreeMap<&NodeName, (HostView, BTreeSet<&ClusterName>)> = BTreeMap::new();
    let find = |name: &NodeName| {
        let found = whole.hosts.binary_search_by(|host| host.name.cmp(name)).ok()?;
        whole.hosts.get(found)
    };
    for vm in vms {
        let Some((name, host)) = vm.infra_node.as_ref().and_then(|name| Some((name, find(name)?))) else {
            continue;
        };
        let (view, clusters) = counted
            .entry(name)
            .or_insert_with(|| (without_vms(host), BTreeSet::new()));
        view.vms += 1;
        view.agents_up += usize::from(vm.agent.status == AgentStatus::Up);
        view.agents_silent += usize::from(vm.agent.status == AgentStatus::Silent);
        clusters.extend(&vm.cluster);
    }
    let finish = |(mut view, clusters): (HostView, BTreeSet<&ClusterName>)| {
        view.clusters = clusters.into_iter().cloned().collect();
        view
    };
    counted.into_values().map(finish).collect()
}

fn without_vms(host: &HostView) -> HostView {
    HostView {
        vms: 0,
        agents_up: 0,
        agents_silent: 0,
        clusters: Vec::new(),
        ..host.clone()
    }
}
