//! Summary of a fleet: how many VMs are well, and what is wrong with the others.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::{
    finding::Severity,
    ids::{ClusterName, Namespace, NodeName, VmName},
};

use crate::{
    health::{HealthCause, HealthVerdict},
    labels::plan::Reason,
    mla::status::MlaSummary,
    view::{AgentStatus, ClusterState, FleetSnapshot, VmView},
};

/// Maximum VMs, hosts and clusters that a summary names.
pub const MAX_NAMED: usize = 10;

/// Summary of a fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetStatus {
    /// See [`crate::view::List::revision`].
    pub revision: u64,
    /// The inventory is incomplete: VMs may be missing.
    pub partial: bool,
    /// The worst verdict of a VM; `Unknown` without VMs, and at best `Unknown` if `partial`.
    pub verdict: HealthVerdict,
    /// Number of VMs whose agents are pulled. All other numbers are about these VMs, too.
    pub vms: usize,
    /// Number of VMs whose agents are not pulled; they are not counted otherwise.
    #[serde(default)]
    pub unmanaged: usize,
    /// VMs by verdict and cause, the worst first.
    pub counts: Vec<HealthCount>,
    /// The worst VMs that are `Degraded` or `Critical`, at most ten.
    pub worst: Vec<SickVm>,
    /// Infra nodes.
    pub hosts: usize,
    /// Infra nodes that are missing, not ready or cordoned, at most ten.
    pub hosts_not_ready: Vec<HostProblem>,
    /// Number of these infra nodes.
    pub hosts_not_ready_total: usize,
    /// User clusters.
    pub clusters: usize,
    /// User clusters that are neither `Ready` nor `Hibernated`, at most ten.
    pub clusters_not_ready: Vec<ClusterProblem>,
    /// Number of these user clusters.
    pub clusters_not_ready_total: usize,
    /// Findings about VMs and about the inventory.
    pub findings: FindingCounts,
    /// Labels of the Nodes of user clusters. Only the leader knows them; none without a Node that
    /// has or is to have one.
    #[serde(default)]
    pub labels: Option<LabelSummary>,
    /// Streams of samples; none without streams.
    #[serde(default)]
    pub mla: Option<MlaSummary>,
}

/// Number of VMs with one verdict and cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCount {
    /// Their verdict.
    pub verdict: HealthVerdict,
    /// Their cause; none if they are healthy.
    pub cause: Option<HealthCause>,
    /// Number of VMs.
    pub vms: usize,
}

/// A VM that is not well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SickVm {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its name.
    pub name: VmName,
    /// Its user cluster.
    pub cluster: Option<ClusterName>,
    /// Verdict.
    pub verdict: HealthVerdict,
    /// Cause.
    pub cause: Option<HealthCause>,
    /// Reason.
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// Next command to run.
    pub next: String,
}

/// An infra node that is not ready for VMs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostProblem {
    /// Its name.
    pub name: NodeName,
    /// `missing`, `not ready`, `unknown` or `cordoned`.
    pub state: String,
    /// VMs on it.
    pub vms: usize,
}

/// A user cluster that is not ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProblem {
    /// Its name.
    pub name: ClusterName,
    /// Its state.
    pub state: ClusterState,
    /// Its VMs.
    pub vms: usize,
}

/// Labels of Nodes of user clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSummary {
    /// Nodes with a label that a policy requests, or that the collector has written.
    pub nodes: usize,
    /// Those of which a label does not have the requested value, and is not written.
    pub not_as_requested: usize,
    /// Why, by number of Nodes, most first.
    pub reasons: Vec<LabelProblem>,
    /// Why the labels of one of these Nodes could not be read or written; none for tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Why labels are not written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelProblem {
    /// The reason, as `virtfleetctl labels diff` shows it, or `NotWritten`.
    pub reason: Reason,
    /// Number of Nodes.
    pub nodes: usize,
}

/// Number of findings by severity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FindingCounts {
    /// Critical ones.
    pub critical: usize,
    /// Warnings.
    pub warning: usize,
    /// Others.
    pub info: usize,
}

impl FleetStatus {
    /// The summary of `fleet`, without labels and streams of samples.
    pub fn of(fleet: &FleetSnapshot) -> Self {
        let partial = fleet.partial || !fleet.gaps.namespaces.is_empty();
        let mut counts: BTreeMap<(std::cmp::Reverse<HealthVerdict>, Option<HealthCause>), usize> =
            BTreeMap::new();
        for vm in managed(fleet) {
            let key = (std::cmp::Reverse(vm.health.verdict), vm.health.cause);
            *counts.entry(key).or_default() += 1;
        }
        let worst = counts.keys().next().map(|(verdict, _)| verdict.0);
        let at_best = if partial {
            HealthVerdict::Unknown
        } else {
            HealthVerdict::Healthy
        };
        let (hosts_not_ready, hosts_not_ready_total) = hosts_not_ready(fleet);
        let (clusters_not_ready, clusters_not_ready_total) = clusters_not_ready(fleet);
        Self {
            revision: fleet.revision,
            partial,
            verdict: worst.unwrap_or_default().max(at_best),
            vms: managed(fleet).count(),
            unmanaged: fleet.vms.len() - managed(fleet).count(),
            counts: counts
                .into_iter()
                .map(|((verdict, cause), vms)| HealthCount {
                    verdict: verdict.0,
                    cause,
                    vms,
                })
                .collect(),
            worst: worst_vms(fleet),
            hosts: fleet.hosts.len(),
            hosts_not_ready,
            hosts_not_ready_total,
            clusters: fleet.clusters.len(),
            clusters_not_ready,
            clusters_not_ready_total,
            findings: findings(fleet),
            labels: None,
            mla: None,
        }
    }
}

/// The VMs whose agents are pulled.
fn managed(fleet: &FleetSnapshot) -> impl Iterator<Item = &VmView> {
    let vms = fleet.vms.values().map(AsRef::as_ref);
    vms.filter(|vm: &&VmView| vm.agent.status != AgentStatus::Unmanaged)
}

fn worst_vms(fleet: &FleetSnapshot) -> Vec<SickVm> {
    let is_sick = |vm: &&VmView| vm.health.verdict > HealthVerdict::Unknown;
    let mut sick: Vec<&VmView> = managed(fleet).filter(is_sick).collect();
    // A stable sort: VMs of one rank stay in order of their names.
    sick.sort_by_key(|vm| (std::cmp::Reverse(vm.health.verdict), vm.health.cause));
    let named = sick.into_iter().take(MAX_NAMED);
    named
        .map(|vm| SickVm {
            namespace: vm.namespace.clone(),
            name: vm.name.clone(),
            cluster: vm.cluster.clone(),
            verdict: vm.health.verdict,
            cause: vm.health.cause,
            reason: vm.health.reason.clone(),
            message: vm.health.message.clone(),
            next: vm.health.next.clone(),
        })
        .collect()
}

fn hosts_not_ready(fleet: &FleetSnapshot) -> (Vec<HostProblem>, usize) {
    let problems = fleet.hosts.iter().filter_map(|host| {
        let state = match (host.known, host.ready, host.cordoned) {
            (false, ..) => "missing",
            (true, Some(false), _) => "not ready",
            (true, None, _) => "unknown",
            (true, Some(true), true) => "cordoned",
            (true, Some(true), false) => return None,
        };
        Some(HostProblem {
            name: host.name.clone(),
            state: state.to_owned(),
            vms: host.vms,
        })
    });
    let mut all: Vec<HostProblem> = problems.collect();
    let total = all.len();
    all.truncate(MAX_NAMED);
    (all, total)
}

fn clusters_not_ready(fleet: &FleetSnapshot) -> (Vec<ClusterProblem>, usize) {
    let problems = fleet
        .clusters
        .iter()
        .filter(|cluster| !matches!(cluster.state, ClusterState::Ready | ClusterState::Hibernated))
        .map(|cluster| ClusterProblem {
            name: cluster.name.clone(),
            state: cluster.state,
            vms: cluster.vms,
        });
    let mut all: Vec<ClusterProblem> = problems.collect();
    let total = all.len();
    all.truncate(MAX_NAMED);
    (all, total)
}

fn findings(fleet: &FleetSnapshot) -> FindingCounts {
    let mut counts = FindingCounts::default();
    for vm in managed(fleet) {
        counts.critical += vm.severities.critical;
        counts.warning += vm.severities.warning;
        counts.info += vm.severities.info;
    }
    for finding in &fleet.findings {
        match finding.severity {
            Severity::Critical => counts.critical += 1,
            Severity::Warning => counts.warning += 1,
            Severity::Info => counts.info += 1,
        }
    }
    counts
}
