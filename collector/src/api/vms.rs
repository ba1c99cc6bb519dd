//! `GET /api/v1/vms`.

use virtfleet_collector_core::view::VmView;
use virtfleet_wire::ids::{ClusterName, NodeName};

use super::{error::ApiError, paging, query::Query, reply::Reply, router::ApiRequest};

pub(super) fn list(request: &ApiRequest) -> Result<Reply, ApiError> {
    let vms = request.snapshot.vms.values().map(AsRef::as_ref);
    let vms = vms.filter(|vm: &&VmView| selects(&request.query, vm));
    let list = paging::page(
        vms,
        |vm| [vm.namespace.as_str(), vm.name.as_str()],
        &request.query,
        &request.snapshot,
    )?;
    Reply::json(&list)
}

fn selects(query: &Query, vm: &VmView) -> bool {
    let by = |name, value: Option<&str>| query.admits(name, value);
    by("namespace", Some(vm.namespace.as_str()))
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
