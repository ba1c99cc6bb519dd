//! All details of one infra node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::{ClusterName, Namespace, NodeName, VmName};

use super::{
    fleet::{PlacedVm, PlacementFleet},
    top::TopHost,
};
use crate::{
    facts::InfraNode,
    health::{HealthCause, HealthVerdict},
    scheduling::ResourceAmounts,
    usage::GuestUsage,
    view::VmState,
};

/// A condition of an infra node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Its reason, and its message if it shows a problem.
    pub text: String,
}

/// A VM on the infra node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostVm {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its name.
    pub name: VmName,
    /// Its user cluster.
    pub cluster: Option<ClusterName>,
    /// State of the VM.
    pub state: VmState,
    /// Its verdict.
    pub verdict: HealthVerdict,
    /// Cause of the verdict.
    pub cause: Option<HealthCause>,
    /// Reason of the verdict.
    pub reason: String,
    /// Number of vCPUs.
    pub vcpus: u64,
    /// CPU that it uses, in thousandths of a CPU; none if that is not known.
    pub used_cpu_milli: Option<u64>,
    /// What it requests.
    pub requests: ResourceAmounts,
    /// The requests are estimated from the VMI.
    pub is_estimated: bool,
    /// Use of CPU and memory between the last two pulls.
    pub usage: Option<GuestUsage>,
}

/// One infra node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostDetail {
    /// Its name.
    pub name: NodeName,
    /// Whether the inventory has its Node.
    pub known: bool,
    /// Its region.
    pub region: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// It takes no other VMs: `spec.unschedulable`.
    pub cordoned: bool,
    /// Its conditions.
    pub conditions: Vec<HostCondition>,
    /// Its taints, as `key=value:effect`.
    pub taints: Vec<String>,
    /// What pods may request; none if it is not known.
    pub allocatable: Option<ResourceAmounts>,
    /// Pods that it may run; none if it is not known.
    pub allocatable_pods: Option<u32>,
    /// What its VMs request.
    pub requested: ResourceAmounts,
    /// Use of CPU and memory of its VMs.
    pub total: TopHost,
    /// Its VMs, those that use most CPU first.
    pub vms: Vec<HostVm>,
}

/// The details of an infra node; none if neither an infra node nor a VMI has this name.
pub fn host_detail(fleet: &PlacementFleet, name: &NodeName) -> Option<HostDetail> {
    let node = fleet.host_index(name).and_then(|at| fleet.hosts.get(at));
    let members: Vec<&PlacedVm> = fleet.vms.iter().filter(|vm| vm.host() == Some(name)).collect();
    if node.is_none() && members.is_empty() {
        return None;
    }
    let mut total = TopHost::of(name);
    let mut requested = ResourceAmounts::default();
    let mut vms = Vec::new();
    for vm in members {
        requested += vm.requests;
        total.add(&vm.view, vm.vcpus());
        vms.push(host_vm(vm));
    }
    vms.sort_by(|a: &HostVm, b| {
        let order = b.used_cpu_milli.cmp(&a.used_cpu_milli);
        order.then_with(|| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)))
    });
    let allocatable = node.and_then(|node| node.allocatable);
    Some(HostDetail {
        name: name.clone(),
        known: node.is_some(),
        region: node.and_then(InfraNode::region).map(str::to_owned),
        zone: node.and_then(InfraNode::zone).map(str::to_owned),
        cordoned: node.is_some_and(|node| node.unschedulable),
        conditions: node.map(conditions).unwrap_or_default(),
        taints: node.map(taints).unwrap_or_default(),
        allocatable: allocatable.map(|one| one.resources),
        allocatable_pods: allocatable.and_then(|one| one.pods),
        requested,
        total,
        vms,
    })
}

fn host_vm(vm: &PlacedVm) -> HostVm {
    let view = &vm.view;
    let usage = view.guest.as_ref().and_then(|guest| guest.usage);
    let used = usage.and_then(|usage| usage.cpu_used);
    HostVm {
        namespace: view.namespace.clone(),
        name: view.name.clone(),
        cluster: view.cluster.clone(),
        state: view.state,
        verdict: view.health.verdict,
        cause: view.health.cause,
        reason: view.health.reason.clone(),
        vcpus: vm.vcpus(),
        used_cpu_milli: used.map(|used| vm.vcpus().saturating_mul(used.milli().into())),
        requests: vm.requests,
        is_estimated: vm.is_estimated,
        usage,
    }
}

fn conditions(node: &InfraNode) -> Vec<HostCondition> {
    let shown = node.conditions.iter().map(|one| HostCondition {
        kind: one.kind.to_string(),
        status: one.status.as_str().to_owned(),
        text: one.text().to_owned(),
    });
    shown.collect()
}

fn taints(node: &InfraNode) -> Vec<String> {
    let shown = node.taints.iter().map(|taint| {
        let value = if taint.value.is_empty() {
            String::new()
        } else {
            format!("={}", taint.value)
        };
        format!("{}{value}:{:?}", taint.key, taint.effect)
    });
    shown.collect()
}
