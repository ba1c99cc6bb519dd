//! Selection of VMs by the parameters that several lists share.

use std::{collections::BTreeSet, sync::Arc};

use virtfleet_collector_core::{facts::Selector, selector_text::parse_selector, view::VmView};
use virtfleet_wire::ids::{ClusterName, NodeName, VmKey};

use super::{error::ApiError, query::Query, route::ApiRequest};

/// Parameters that select VMs in lists about something else.
const SHARED: [&str; 8] = [
    "namespace",
    "name",
    "cluster",
    "node",
    "zone",
    "state",
    "health",
    "selector",
];

/// Whether a request selects by properties of VMs.
pub(super) fn has_vm_filter(query: &Query) -> bool {
    SHARED.iter().any(|name| query.has(name))
}

/// The visible VMs that the parameters select, in order.
pub(super) fn selected(request: &ApiRequest) -> Result<Vec<(VmKey, Arc<VmView>)>, ApiError> {
    let query = &request.query;
    let vms = request.snapshot.vms.iter().filter(|(_, vm)| admits(query, vm));
    let mut vms: Vec<_> = vms.map(|(key, vm)| (key.clone(), Arc::clone(vm))).collect();
    if let Some(selector) = selector(query)? {
        let keys: Vec<VmKey> = vms.iter().map(|(key, _)| key.clone()).collect();
        let labels = request.api.fleet.vm_labels(&keys);
        let matching = keys.into_iter().zip(labels);
        let matching = matching.filter(|(_, labels)| selector.matches(labels));
        let matching: BTreeSet<VmKey> = matching.map(|(key, _)| key).collect();
        vms.retain(|(key, _)| matching.contains(key));
    }
    Ok(vms)
}

fn selector(query: &Query) -> Result<Option<Selector>, ApiError> {
    let text = query.text("selector");
    let parsed = text.map(parse_selector).transpose();
    parsed.map_err(|error| {
        ApiError::invalid(
            format!("the parameter \"selector\": {error}"),
            "write it as for kubectl -l, percent-encoded",
        )
    })
}

fn admits(query: &Query, vm: &VmView) -> bool {
    let by = |name, value: Option<&str>| query.admits(name, value);
    by("namespace", Some(vm.namespace.as_str()))
        && by("name", Some(vm.name.as_str()))
        && by("cluster", vm.cluster.as_ref().map(ClusterName::as_str))
        && by("node", vm.infra_node.as_ref().map(NodeName::as_str))
        && by("zone", vm.zone.as_deref())
        && by("region", vm.region.as_deref())
        && by("state", Some(vm.state.as_str()))
        && by("health", Some(vm.health.verdict.label()))
        && by("agent", Some(vm.agent.status.as_str()))
        && query
            .text("q")
            .is_none_or(|part| vm.name.as_str().contains(&part.to_lowercase()))
}
