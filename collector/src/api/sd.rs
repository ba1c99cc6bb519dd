//! `GET /sd`: Prometheus' HTTP service discovery (Prometheus documentation, "Writing HTTP service
//! discovery"): one target group for every VM whose agent was verified; always the complete list.
//!
//! An agent that has connected to the collector has no address that Prometheus could dial: it is
//! listed under a name below `.invalid` (RFC 2606), for a Prometheus that scrapes through the
//! collector.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::{
    pull_result::UnixMs,
    view::{AgentStatus, VmView},
    way::AgentWay,
};
use virtfleet_wire::{
    ids::{ClusterName, NodeName, Uid, VmKey},
    settings::AGENT_PORT,
};

use super::{error::ApiError, reply::Reply, router::ApiRequest};

/// One target group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetGroup {
    /// `address:port` of the agent, or `name.namespace.push.invalid:port`: always one entry.
    pub targets: Vec<String>,
    /// Labels of the target. Empty labels are omitted, which is the same for Prometheus.
    pub labels: BTreeMap<String, String>,
}

/// The target groups. Before the inventory has been read the response is an error: with an empty
/// list Prometheus would drop all targets, after an error it keeps them.
pub(super) fn targets(request: &ApiRequest) -> Result<Reply, ApiError> {
    if !request.snapshot.synced {
        return Err(ApiError::not_synced());
    }
    let listed = listed(request.whole.vms.values().map(AsRef::as_ref));
    let visible = listed.into_iter().filter_map(|(vm, address)| {
        let key = VmKey {
            namespace: vm.namespace.clone(),
            name: vm.name.clone(),
        };
        Some(group(request.snapshot.vms.get(&key)?, address))
    });
    Reply::json(&visible.collect::<Vec<_>>())
}

/// Prometheus would attribute whatever answers at an address to the VM in the labels. So the list
/// has only agents whose certificates the collector verified in its last attempts, and each address
/// once: for the VM verified there last, whoever may see that one. The address from which an agent
/// has connected is its own.
fn listed<'a>(vms: impl Iterator<Item = &'a VmView>) -> Vec<(&'a VmView, SocketAddr)> {
    let verified: Vec<_> = vms.filter_map(|vm| Some((vm, target(vm)?))).collect();
    let mut last: HashMap<SocketAddr, (UnixMs, usize)> = HashMap::new();
    for (_, (address, at)) in &verified {
        let known = last.entry(*address).or_default();
        match at.cmp(&known.0) {
            Ordering::Greater => *known = (*at, 1),
            Ordering::Equal => known.1 += 1,
            Ordering::Less => {}
        }
    }
    let listed = verified
        .into_iter()
        .filter(|(_, (address, at))| last.get(address) == Some(&(*at, 1)));
    listed.map(|(vm, (address, _))| (vm, address)).collect()
}

/// The address at which a VM's agent was verified, and when; none if its VM does not run. A
/// collector that pulls no agents verifies no certificates: it lists each address that only one VM
/// has, and Prometheus alone checks the certificate.
fn target(vm: &VmView) -> Option<(SocketAddr, UnixMs)> {
    let address = vm.agent.address.filter(|_| vm.state.can_answer())?;
    let unverified = (vm.agent.status == AgentStatus::Disabled).then_some(1);
    Some((address, vm.agent.verified_ms.or(unverified)?))
}

fn group(vm: &VmView, address: SocketAddr) -> TargetGroup {
    let instance = vm
        .user_node
        .as_ref()
        .map_or_else(|| vm.name.as_str(), |node| node.as_str());
    let text = |id: Option<&str>| id.unwrap_or_default().to_owned();
    let labels = [
        ("__scheme__", "https".to_owned()),
        ("job", "node".to_owned()),
        ("instance", instance.to_owned()),
        ("cluster", text(vm.cluster.as_ref().map(ClusterName::as_str))),
        ("namespace", vm.namespace.to_string()),
        ("name", vm.name.to_string()),
        ("__meta_virtfleet_zone", text(vm.zone.as_deref())),
        ("__meta_virtfleet_region", text(vm.region.as_deref())),
        (
            "__meta_virtfleet_infra_node",
            text(vm.infra_node.as_ref().map(NodeName::as_str)),
        ),
        (
            "__meta_virtfleet_user_node",
            text(vm.user_node.as_ref().map(NodeName::as_str)),
        ),
        ("__meta_virtfleet_uid", text(vm.uid.as_ref().map(Uid::as_str))),
        ("__meta_virtfleet_state", vm.state.as_str().to_owned()),
        (
            "__meta_virtfleet_way",
            text(vm.agent.way.as_ref().map(AgentWay::kind)),
        ),
    ];
    let target = match vm.agent.way {
        Some(AgentWay::Push { .. }) => format!("{}.{}.push.invalid:{AGENT_PORT}", vm.name, vm.namespace),
        _ => address.to_string(),
    };
    TargetGroup {
        targets: vec![target],
        labels: labels
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    }
}
