//! What-if: an infra node is drained. Nothing is written.
//!
//! ```text
//! VM ─▶ eviction strategy, LiveMigratable, migration ─▶ migrates │ stops │ blocks
//!    └▶ infra nodes that its rules allow ─▶ those with room ─▶ the one that it fills most
//! ```
//! The largest VMs are placed first. That is an estimate: the scheduler chooses otherwise, sees all
//! pods, and may find room where this finds none.

mod evidence;
mod seats;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::{ClusterName, Namespace, NodeName, VmKey, VmName};

use self::seats::{Seat, Seats};
pub use self::{
    evidence::{DrainEvidence, NodePod, VmVolume},
    seats::DrainHost,
};
use super::fleet::{PlacedVm, PlacementFleet};
use crate::{
    scheduling::{EvictionStrategy, ResourceAmounts},
    view::VmState,
};

/// Maximum infra nodes that are named for a VM.
const MAX_CANDIDATES: usize = 5;
/// Maximum pods that are listed for a VM.
const MAX_PODS: usize = 50;
/// Maximum user clusters that a note names.
const MAX_NAMED_CLUSTERS: usize = 10;

/// What happens to a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DrainOutcome {
    /// It stays, and the drain does not end.
    Blocks,
    /// It is shut down.
    Stops,
    /// It is live-migrated.
    Migrates,
}

impl DrainOutcome {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Stops => "stops",
            Self::Migrates => "migrates",
        }
    }
}

/// One VM on the infra node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainVm {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its name.
    pub name: VmName,
    /// Its user cluster.
    pub cluster: Option<ClusterName>,
    /// Its Node in the user cluster, whose pods ride on it.
    pub user_node: Option<NodeName>,
    /// What happens to it.
    pub outcome: DrainOutcome,
    /// Why, one sentence.
    pub reason: String,
    /// Its eviction strategy.
    pub eviction_strategy: String,
    /// What it requests.
    pub requests: ResourceAmounts,
    /// Where it, or the VM that replaces it, could go, by the estimate.
    pub target: Option<NodeName>,
    /// Infra nodes that its rules allow and that have room, at most five.
    pub candidates: Vec<NodeName>,
    /// Number of these infra nodes.
    pub candidates_total: usize,
    /// Its rules allow an infra node, and none of these has room.
    pub lacks_room: bool,
    /// Its volumes in the infra cluster, if they were read.
    #[serde(default)]
    pub volumes: Vec<VmVolume>,
    /// Pods on its Node that a drain of the Node evicts, if they were read: at most fifty, those
    /// that cannot be evicted first. Pods of DaemonSets and static pods are left out.
    #[serde(default)]
    pub pods: Vec<NodePod>,
    /// Number of these pods; none: they were not read.
    #[serde(default)]
    pub pods_total: Option<usize>,
    /// How many of them cannot be evicted now.
    #[serde(default)]
    pub pods_refused: usize,
}

/// What happens if an infra node is drained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainPlan {
    /// The infra node.
    pub host: NodeName,
    /// Whether the inventory has its Node.
    pub known: bool,
    /// It is cordoned already.
    pub cordoned: bool,
    /// VMs that migrate.
    pub migrates: usize,
    /// VMs that stop.
    pub stops: usize,
    /// VMs that block the drain.
    pub blocks: usize,
    /// Every VM that must leave finds room on another infra node.
    pub has_room: bool,
    /// What the VMs without room request together.
    pub missing: ResourceAmounts,
    /// VMs whose rules no other infra node meets.
    pub without_host: usize,
    /// VMs that are migrating to the infra node now.
    pub arriving: Vec<String>,
    /// The VMs on it, those that block first.
    pub vms: Vec<DrainVm>,
    /// The infra nodes that would take a VM.
    pub hosts: Vec<DrainHost>,
    /// What the collector does not know, so that the plan may be wrong.
    pub not_known: Vec<String>,
}

/// What happens if `host` is drained; none if neither an infra node nor a VMI has this name.
pub fn drain(fleet: &PlacementFleet, host: &NodeName, evidence: &DrainEvidence) -> Option<DrainPlan> {
    let own = fleet.host_index(host);
    let is_here = |vm: &PlacedVm| vm.host() == Some(host);
    let mut here: Vec<usize> = (0..fleet.vms.len())
        .filter(|&at| fleet.vms.get(at).is_some_and(is_here))
        .collect();
    if own.is_none() && here.is_empty() {
        return None;
    }
    let mut seats = Seats::new(fleet, own, &here);
    // Largest first, then by name, so that equal fleets give equal plans.
    here.sort_by_key(|&at| {
        let requests = fleet.vms.get(at).map(|vm| vm.requests).unwrap_or_default();
        (std::cmp::Reverse((requests.memory_bytes, requests.cpu_milli)), at)
    });
    let node = own.and_then(|own| fleet.hosts.get(own));
    let mut plan = DrainPlan {
        host: host.clone(),
        known: node.is_some(),
        cordoned: node.is_some_and(|node| node.unschedulable),
        migrates: 0,
        stops: 0,
        blocks: 0,
        has_room: true,
        missing: ResourceAmounts::default(),
        without_host: 0,
        arriving: Vec::new(),
        vms: Vec::new(),
        hosts: Vec::new(),
        not_known: Vec::new(),
    };
    for at in here {
        if let Some(vm) = fleet.vms.get(at) {
            plan.add(drain_vm(vm, at, &mut seats, evidence));
        }
    }
    plan.vms
        .sort_by(|a, b| (a.outcome, &a.namespace, &a.name).cmp(&(b.outcome, &b.namespace, &b.name)));
    let arriving = fleet
        .vms
        .iter()
        .filter(|vm| vm.migrating_to() == Some(host) && !is_here(vm));
    plan.arriving = arriving.map(|vm| vm.key().to_string()).collect();
    plan.hosts = seats.hosts();
    plan.not_known = not_known(fleet, host, &seats, evidence);
    Some(plan)
}

impl DrainPlan {
    fn add(&mut self, vm: DrainVm) {
        match vm.outcome {
            DrainOutcome::Migrates => self.migrates += 1,
            DrainOutcome::Stops => self.stops += 1,
            DrainOutcome::Blocks => self.blocks += 1,
        }
        if vm.lacks_room {
            self.missing += vm.requests;
            self.has_room = false;
        }
        self.vms.push(vm);
    }

    /// The sentence about room on the other infra nodes.
    pub fn room(&self) -> String {
        if self.has_room {
            "yes".to_owned()
        } else {
            let gibibytes = self.missing.memory_bytes.div_ceil(1 << 30);
            let cpus = self.missing.cpu_milli.div_ceil(1000);
            format!("no, missing {cpus} CPU, {gibibytes} Gi memory")
        }
    }
}

/// The outcome by eviction strategy alone, with the reason.
fn by_strategy(vm: &PlacedVm) -> (DrainOutcome, String) {
    let strategy = vm.scheduling.eviction;
    let name = strategy.as_str();
    let not_migratable = || match &vm.not_migratable {
        Some(why) => format!("it is not live-migratable: {why}"),
        None if vm.live_migratable.is_none() => {
            "KubeVirt does not report whether it is live-migratable".to_owned()
        }
        None => "it is not live-migratable".to_owned(),
    };
    let is_migratable = vm.live_migratable == Some(true);
    match strategy {
        EvictionStrategy::LiveMigrate if is_migratable => {
            (DrainOutcome::Migrates, format!("evictionStrategy {name}"))
        }
        EvictionStrategy::LiveMigrate => (
            DrainOutcome::Blocks,
            format!("evictionStrategy {name}, and {}", not_migratable()),
        ),
        EvictionStrategy::LiveMigrateIfPossible if is_migratable => {
            (DrainOutcome::Migrates, format!("evictionStrategy {name}"))
        }
        EvictionStrategy::LiveMigrateIfPossible => (
            DrainOutcome::Stops,
            format!("evictionStrategy {name}, and {}", not_migratable()),
        ),
        EvictionStrategy::External => (
            DrainOutcome::Blocks,
            format!("evictionStrategy {name}: {}", of_external(vm)),
        ),
        EvictionStrategy::Nothing => (DrainOutcome::Stops, format!("evictionStrategy {name}")),
        EvictionStrategy::Default => (
            DrainOutcome::Stops,
            "no evictionStrategy, and KubeVirt's default is None".to_owned(),
        ),
        EvictionStrategy::Other => (
            DrainOutcome::Blocks,
            "this version does not know its evictionStrategy".to_owned(),
        ),
    }
}

/// What an eviction does with the strategy `External`: KubeVirt refuses it and names the infra node
/// in `status.evacuationNodeName`. The controller that made the VM does the rest: Cluster API
/// drains the Node and deletes the VMI, KKP deletes the Machine.
fn of_external(vm: &PlacedVm) -> &'static str {
    if vm.eviction_requested {
        "its controller (Cluster API, KKP) was asked to move it and has not done so"
    } else {
        "an eviction only asks its controller (Cluster API, KKP) to move it"
    }
}

fn drain_vm(vm: &PlacedVm, at: usize, seats: &mut Seats<'_>, evidence: &DrainEvidence) -> DrainVm {
    let (outcome, reason) = by_strategy(vm);
    let key = vm.key();
    let volumes = evidence.volumes_of(&key);
    let mut pods = evidence.pods_of(&key);
    let pods_total = evidence.pods.contains_key(&key).then_some(pods.len());
    let pods_refused = pods.iter().filter(|pod| pod.refused.is_some()).count();
    pods.truncate(MAX_PODS);
    let mut drained = DrainVm {
        namespace: vm.view.namespace.clone(),
        name: vm.view.name.clone(),
        cluster: vm.view.cluster.clone(),
        user_node: vm.view.user_node.clone(),
        outcome,
        reason,
        eviction_strategy: vm.scheduling.eviction.as_str().to_owned(),
        requests: vm.requests,
        target: None,
        candidates: Vec::new(),
        candidates_total: 0,
        lacks_room: false,
        volumes: volumes.to_vec(),
        pods,
        pods_total,
        pods_refused,
    };
    if vm.view.state == VmState::Stopping {
        drained.outcome = DrainOutcome::Stops;
        "it is being deleted".clone_into(&mut drained.reason);
        return drained;
    }
    if let Some(target) = vm.migrating_to() {
        // Its pod on the target is counted there already.
        drained.outcome = DrainOutcome::Migrates;
        drained.reason = format!("a migration to {target} is in progress");
        drained.target = Some(target.clone());
        return drained;
    }
    // With `External` it leaves later, and needs room then.
    if outcome == DrainOutcome::Blocks && vm.scheduling.eviction != EvictionStrategy::External {
        seats.stay(at);
        return drained;
    }
    let Seat {
        target,
        fitting,
        refusals,
        lacks_room,
    } = seats.take(at, vm, volumes);
    drained.candidates_total = fitting.len();
    drained.candidates = fitting.into_iter().take(MAX_CANDIDATES).collect();
    drained.lacks_room = lacks_room;
    if target.is_none() {
        let why = refusals_text(&refusals);
        if outcome == DrainOutcome::Migrates {
            drained.outcome = DrainOutcome::Blocks;
            drained.reason = format!("it cannot migrate: {why}");
        } else {
            drained.reason = format!("it cannot start elsewhere: {why}; {}", drained.reason);
        }
    }
    drained.target = target;
    drained
}

/// Why no infra node takes a VM, e.g. `1 cordoned, 2 without room`.
fn refusals_text(refusals: &BTreeMap<&'static str, usize>) -> String {
    if refusals.is_empty() {
        return "there is no other infra node".to_owned();
    }
    let parts = refusals.iter().map(|(why, count)| format!("{count} {why}"));
    format!(
        "of the other infra nodes {}",
        parts.collect::<Vec<_>>().join(", ")
    )
}

fn not_known(
    fleet: &PlacementFleet,
    host: &NodeName,
    seats: &Seats<'_>,
    evidence: &DrainEvidence,
) -> Vec<String> {
    let here = || fleet.vms.iter().filter(|vm| vm.host() == Some(host));
    let mut notes = vec![
        "requests of pods that are no VMs, also of those on the other infra nodes".to_owned(),
        "CPU models".to_owned(),
    ];
    if !evidence.knows_volumes {
        notes.push("zones of volumes".to_owned());
    }
    let clusters = here().filter_map(|vm| vm.view.cluster.as_ref());
    let clusters: BTreeSet<&ClusterName> = clusters
        .filter(|cluster| !evidence.clusters.contains(*cluster))
        .collect();
    if !clusters.is_empty() {
        let named = clusters.iter().take(MAX_NAMED_CLUSTERS).map(|name| name.as_str());
        let mut named = named.collect::<Vec<_>>().join(", ");
        if clusters.len() > MAX_NAMED_CLUSTERS {
            named.push_str(", …");
        }
        notes.push(format!(
            "PodDisruptionBudgets and pods of the user clusters {named}"
        ));
    }
    if here().any(|vm| vm.scheduling.eviction == EvictionStrategy::Default) {
        notes.push("evictionStrategy in the KubeVirt object, which replaces the default None".to_owned());
    }
    let estimated = here().filter(|vm| vm.is_estimated).count();
    if estimated > 0 {
        notes.push(format!(
            "virt-launcher pods of {estimated} VMs: their requests are estimated"
        ));
    }
    notes.extend(seats.notes());
    notes.extend(evidence.gaps.iter().cloned());
    if fleet.partial {
        notes.push("the complete inventory: VMs and infra nodes may be missing".to_owned());
    }
    notes
}

impl DrainVm {
    pub fn key(&self) -> VmKey {
        VmKey {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}
