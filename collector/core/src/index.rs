//! The fleet index: joins the facts of the inventory with the agents' answers into a view of every
//! VM.
//!
//! ```text
//! event ─▶ store the fact ─▶ affected VMs ─▶ their keys ─▶ VMs that share a changed key ─▶ views of both
//! ```
//! The cost of an event depends on the VMs that it affects, not on the size of the fleet. In any
//! order of events, equal facts give equal snapshots.

mod change;
mod dangling;
mod expected_node;
mod health;
mod heartbeats;
mod labels;
mod located_vm;
mod managed;
mod node_conditions;
mod placement;
mod pushed;
mod stale;
mod story;
mod touched;
mod volumes;

pub use self::{labels::Owners, located_vm::LocatedVm, pushed::NoVmAtAddress};

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    net::SocketAddr,
};

use virtfleet_wire::{
    finding::Finding,
    ids::{ClusterName, Uid, VmKey},
};

use self::{stale::StaleInventory, touched::Touched};
use crate::{
    budget::{BudgetOwner, ReportBudget},
    detail,
    dial::{DialRules, DialTarget},
    enrolment::{EnrolmentSubject, VmProof},
    expected::ExpectedIdentity,
    facts::{FactKey, InfraNode, InventoryEvent, Vmi},
    findings::{self, Gap, keep_since},
    keys::SharedValue,
    pull_result::{Failure, FailureClass, PullResult, UnixMs},
    snapshot,
    store::{Store, VmEntry},
    story::StormWatch,
    view::{ClusterStatus, FleetSnapshot, Gaps, VmDetail, VmState},
    way::AgentWay,
};

/// Joined state of the fleet.
#[derive(Debug, Default)]
pub struct FleetIndex {
    store: Store,
    revision: u64,
    /// Objects applied since `Init`; none outside a full read.
    full_read: Option<HashSet<FactKey>>,
    synced: bool,
    /// What the first complete read says has been evaluated. Later changes are news, and must last.
    holds: bool,
    inventory: Vec<Finding>,
    authority: Vec<Finding>,
    join_tokens: Vec<Finding>,
    /// Findings about required rules between VMs.
    placement: Vec<Finding>,
    /// Findings about streams of samples.
    mla: Vec<Finding>,
    /// Findings about hosts and clusters that are referenced but missing, sorted by id and subject.
    dangling: Vec<Finding>,
    /// Starts of migrations.
    storms: StormWatch,
    /// Findings about storms of migrations.
    storm_findings: Vec<Finding>,
    /// Time of the first complete read of the inventory.
    synced_ms: Option<UnixMs>,
    /// Status of each user cluster; none if nothing connects to them, because the inventory is a
    /// folder.
    statuses: Option<BTreeMap<ClusterName, ClusterStatus>>,
    budget: ReportBudget,
    /// Grows with every change of an infra node.
    infra_generation: u64,
    /// What the inventory does not follow at present, by `inventory`.
    stale: StaleInventory,
    /// Findings about conditions that cannot be written to Nodes.
    node_conditions: Vec<Finding>,
    /// Findings about settings of streams.
    mla_settings: Vec<Finding>,
    cluster_sources: Vec<Finding>,
    /// Findings of the leader: about claims of VMs that run, and about labels.
    claim_findings: Vec<Finding>,
    label_findings: Vec<Finding>,
    /// VMs whose conditions have changed and may have to be written to their Nodes.
    changed_conditions: BTreeSet<VmKey>,
    /// RFC 3339; see [`FleetIndex::set_time`].
    now: String,
    /// The same time, in milliseconds since 1970.
    now_ms: UnixMs,
}

impl FleetIndex {
    pub fn new(rules: DialRules) -> Self {
        Self {
            store: Store::new(rules),
            ..Self::default()
        }
    }

    /// Sets the current time, RFC 3339 in UTC, which new findings get as `since`, and the same in
    /// milliseconds since 1970, by which health is held.
    pub fn set_time(&mut self, now: String, now_ms: UnixMs) {
        self.now = now;
        self.now_ms = now_ms;
    }

    /// Applies one event. Returns the VMs whose view or dial target may have changed, including
    /// removed ones, sorted.
    ///
    /// Between `Init` and `Synced` nothing is removed: objects deleted meanwhile are removed at
    /// `Synced`, unless they were applied again. A `Synced` without `Init` removes nothing.
    pub fn apply(&mut self, event: InventoryEvent) -> Vec<VmKey> {
        let mut touched = Touched::default();
        match event {
            InventoryEvent::Init => self.full_read = Some(HashSet::new()),
            InventoryEvent::Apply(fact) => {
                let key = fact.key();
                self.put(&key, Some(fact), &mut touched);
                if let Some(applied) = &mut self.full_read {
                    applied.insert(key);
                }
            }
            InventoryEvent::Delete(key) => match &mut self.full_read {
                Some(applied) => {
                    applied.remove(&key);
                }
                None => self.put(&key, None, &mut touched),
            },
            InventoryEvent::Synced => {
                if let Some(seen) = self.full_read.take() {
                    for key in self.known().into_iter().filter(|key| !seen.contains(key)) {
                        self.put(&key, None, &mut touched);
                    }
                }
                if !self.synced {
                    self.revision += 1;
                    self.synced = true;
                    // What is absent now does not exist.
                    touched.views.extend(self.store.vms.keys().cloned());
                }
                self.synced_ms.get_or_insert(self.now_ms);
                self.check_policies();
            }
            InventoryEvent::Leases(leases) => self.put_leases(leases),
            InventoryEvent::ServiceNetworks(networks) => {
                if self.store.rules.set_service_networks(networks) {
                    // The dial target of every VM may change.
                    touched.keys.extend(self.store.vms.keys().cloned());
                    touched.views.extend(self.store.vms.keys().cloned());
                    self.revision += 1;
                }
            }
        }
        let affected = self.update_affected(touched);
        self.holds = self.synced;
        affected
    }

    /// Records the result of a pull. A result for a VM without VMI is dropped. Returns whether it
    /// was recorded.
    pub fn record_pull(&mut self, pull: PullResult) -> bool {
        let Some(entry) = self
            .store
            .vms
            .get_mut(&pull.vm)
            .filter(|entry| entry.vmi.is_some())
        else {
            return false;
        };
        Self::observe_report(entry, &pull);
        entry.pulls.record_verification(&pull);
        entry.pulls.pushed = pull.address.filter(|_| pull.pushed);
        let failure = match pull.outcome {
            Ok(mut answer) => {
                entry.pulls.record_usage(pull.at, &answer);
                let before = entry.pulls.answer.take();
                let before = before
                    .map(|(_, answer)| answer.report.findings)
                    .unwrap_or_default();
                keep_since(&before, &mut answer.report.findings, &self.now);
                entry.pulls.record_latency(answer.slow, &self.now);
                entry.pulls.answer = Some((pull.at, Box::new(answer)));
                None
            }
            Err(failure) => Some(failure),
        };
        entry.pulls.record_attempt(pull.at, failure, &self.now);
        self.revision += 1;
        let mut touched = Touched::default();
        touched.views.insert(pull.vm);
        self.update_affected(touched);
        true
    }

    /// As [`FleetIndex::record_pull`], but only while the VMI still has the UID `dialled`: a pull
    /// that started before a VM was replaced says nothing about the new VM of that name.
    pub fn record_pull_of(&mut self, dialled: Option<&Uid>, pull: PullResult) -> bool {
        let vmi = self.store.vms.get(&pull.vm).and_then(|entry| entry.vmi.as_ref());
        vmi.is_some_and(|vmi| vmi.uid.as_ref() == dialled) && self.record_pull(pull)
    }

    /// Replaces the findings of the inventory's reader.
    pub fn set_inventory_findings(&mut self, mut findings: Vec<Finding>) {
        findings.sort_by(|a, b| (&a.id, &a.subject).cmp(&(&b.id, &b.subject)));
        keep_since(&self.inventory, &mut findings, &self.now);
        if self.inventory != findings {
            self.inventory = findings;
            self.revision += 1;
            self.update_stale();
        }
    }

    /// Replaces the findings about the fleet's authority.
    pub fn set_authority_findings(&mut self, findings: Vec<Finding>) {
        self.revision += u64::from(replace(&mut self.authority, findings, &self.now));
    }

    /// Replaces the findings about join tokens.
    pub fn set_join_token_findings(&mut self, findings: Vec<Finding>) {
        self.revision += u64::from(replace(&mut self.join_tokens, findings, &self.now));
    }

    /// Replaces the findings about required rules between VMs.
    pub fn set_placement_findings(&mut self, findings: Vec<Finding>) {
        self.revision += u64::from(replace(&mut self.placement, findings, &self.now));
    }

    /// Replaces the findings about streams of samples.
    pub fn set_mla_findings(&mut self, findings: Vec<Finding>) {
        self.revision += u64::from(replace(&mut self.mla, findings, &self.now));
    }

    /// Replaces the findings about conditions that cannot be written to Nodes.
    pub fn set_node_condition_findings(&mut self, findings: Vec<Finding>) {
        self.revision += u64::from(replace(&mut self.node_conditions, findings, &self.now));
    }

    /// Replaces the findings about sources of user clusters.
    pub fn set_cluster_source_findings(&mut self, findings: Vec<Finding>) {
        self.revision += u64::from(replace(&mut self.cluster_sources, findings, &self.now));
    }

    /// Replaces the findings about settings of streams that cannot be used.
    pub fn set_mla_settings_findings(&mut self, findings: Vec<Finding>) {
        self.revision += u64::from(replace(&mut self.mla_settings, findings, &self.now));
    }

    /// Sets the status of each user cluster. A `UserCluster` without an entry is `Pending`. Until
    /// the first call, the inventory is treated as a folder: each `UserCluster` is `Ready`, or
    /// `Suspended`.
    pub fn set_cluster_statuses(&mut self, statuses: BTreeMap<ClusterName, ClusterStatus>) {
        if self.statuses.as_ref() == Some(&statuses) {
            return;
        }
        let before = self.statuses.replace(statuses);
        self.revision += 1;
        self.note_reached(before.as_ref());
        let state = |statuses: &Option<BTreeMap<ClusterName, ClusterStatus>>, name: &ClusterName| {
            statuses
                .as_ref()
                .map(|statuses| statuses.get(name).map(|status| status.state).unwrap_or_default())
        };
        let after = self.statuses.clone();
        if before.is_none() {
            // It is a live cluster, of which more is known than of a folder.
            self.recompute_health();
        }
        self.touch_clusters(|name| state(&before, name) != state(&after, name));
    }

    /// Grows with every visible change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The whole fleet, in a fixed order.
    pub fn snapshot(&self) -> FleetSnapshot {
        let views = self.store.vms.iter();
        let (mut partial, mut gaps) = (!self.synced, Gaps::default());
        for gap in self.inventory.iter().filter_map(findings::gap) {
            match gap {
                Gap::Fleet => partial = true,
                Gap::Cluster(name) => drop(gaps.clusters.insert(name)),
                Gap::Namespace(name) => drop(gaps.namespaces.insert(name)),
            }
        }
        let mut clusters = snapshot::clusters(&self.store, self.statuses.as_ref());
        snapshot::set_partial(&mut clusters, &mut gaps);
        FleetSnapshot {
            revision: self.revision,
            partial,
            gaps,
            synced: self.synced,
            vms: views
                .filter_map(|(key, entry)| Some((key.clone(), entry.view.clone()?)))
                .collect(),
            hosts: snapshot::hosts(&self.store),
            clusters,
            findings: self
                .authority
                .iter()
                .chain(&self.join_tokens)
                .chain(&self.placement)
                .chain(&self.mla)
                .chain(&self.node_conditions)
                .chain(&self.mla_settings)
                .chain(&self.cluster_sources)
                .chain(&self.claim_findings)
                .chain(&self.label_findings)
                .chain(&self.inventory)
                .chain(&self.dangling)
                .chain(&self.storm_findings)
                .cloned()
                .collect(),
        }
    }

    /// Grows with every change of [`FleetIndex::infra_nodes`].
    pub fn infra_generation(&self) -> u64 {
        self.infra_generation
    }

    /// Every infra node of the inventory, by name.
    pub fn infra_nodes(&self) -> impl Iterator<Item = &InfraNode> {
        self.store.infra_nodes.values()
    }

    /// All details of one VM; none for an unknown VM.
    pub fn detail(&self, key: &VmKey) -> Option<VmDetail> {
        let story = self.story(key)?;
        detail::detail(&self.store, key, story, self.synced_ms, self.now_ms)
    }

    /// All findings about one VM: the collector's, then its guest's.
    pub fn findings(&self, key: &VmKey) -> Vec<Finding> {
        self.store
            .vms
            .get(key)
            .map(|entry| detail::findings(entry))
            .unwrap_or_default()
    }

    /// The tenant to which a VM's resource usage counts.
    pub fn budget_owner(&self, key: &VmKey) -> BudgetOwner {
        let entry = self.store.vms.get(key);
        budget_owner(key, entry.and_then(|entry| entry.keys.tenant.cluster()))
    }

    /// The dial target of a VM's agent.
    ///
    /// # Errors
    /// [`FailureClass::NoAddress`]: the VM is unknown, does not run or has no address.
    /// [`FailureClass::NotAllowed`]: none of its addresses may be dialled.
    pub fn dial(&self, key: &VmKey) -> Result<DialTarget, Failure> {
        let (entry, vmi) = self.running(key)?;
        let (address, way) = (self.store.address_of(vmi)?, self.store.way_of(entry));
        Ok(target(key, entry, vmi, address, way))
    }

    /// A VM whose agent can answer.
    fn running(&self, key: &VmKey) -> Result<(&VmEntry, &Vmi), Failure> {
        let refuse = |message: String| Failure::new(FailureClass::NoAddress, message);
        let entry = self.store.vms.get(key).map(Box::as_ref);
        let entry = entry.ok_or_else(|| refuse(format!("there is no VM {key} in the inventory")))?;
        let state = entry.view.as_ref().map(|view| view.state);
        let vmi = entry
            .vmi
            .as_deref()
            .filter(|_| state.is_some_and(VmState::can_answer));
        let vmi = vmi.ok_or_else(|| {
            let state = state.map_or("unknown", VmState::as_str);
            refuse(format!("{key} is {state}, so its agent cannot answer"))
        })?;
        if !entry.is_dialled() {
            return Err(refuse(format!(
                "{key} is not managed, so its agent is not dialled"
            )));
        }
        Ok((entry, vmi))
    }

    /// What enrolment must know now of the VM of `target`, which `proof` names; none if it is gone,
    /// or cannot be reached at that address any more.
    pub fn enrolment_subject(&self, target: &DialTarget, proof: VmProof) -> Option<EnrolmentSubject> {
        let key = &target.key;
        let (target, sharers) = match target.way {
            AgentWay::Push { peer } => (
                self.pushed_target(key, peer).ok()?,
                match proof {
                    VmProof::Address => self.sharers_at(key, peer.ip())?,
                    VmProof::Shown => Vec::new(),
                },
            ),
            AgentWay::Direct | AgentWay::Relay(_) => {
                let target = self.dial(key).ok()?;
                let shared = SharedValue::Address(target.address);
                let (sharers, _) = self.store.shared_values.others(&shared, key);
                (target, sharers)
            }
        };
        let vmi = self.store.vms.get(key)?.vmi.as_deref()?;
        Some(EnrolmentSubject {
            target,
            expected: ExpectedIdentity::of(vmi),
            sharers,
        })
    }

    /// Whether the inventory has a VM of this name.
    pub fn has_vm(&self, key: &VmKey) -> bool {
        self.store.vms.contains_key(key)
    }

    /// Whether the VM runs and its agent is pulled.
    pub fn can_answer(&self, key: &VmKey) -> bool {
        self.store.vms.get(key).is_some_and(|entry| entry.is_dialled())
    }

    /// Every VM whose agent is pulled, sorted; [`FleetIndex::dial`] gives the address.
    pub fn targets(&self) -> Vec<VmKey> {
        let vms = self.store.vms.iter().filter(|(_, entry)| entry.is_dialled());
        vms.map(|(key, _)| key.clone()).collect()
    }
}

/// Replaces findings; returns whether they differ.
fn replace(known: &mut Vec<Finding>, mut new: Vec<Finding>, now: &str) -> bool {
    keep_since(known, &mut new, now);
    let is_changed = *known != new;
    *known = new;
    is_changed
}

/// The target of a VM's agent at an address.
fn target(key: &VmKey, entry: &VmEntry, vmi: &Vmi, address: SocketAddr, way: AgentWay) -> DialTarget {
    DialTarget {
        key: key.clone(),
        uid: vmi.uid.clone(),
        // The VMI itself names its VirtualMachine, also while that is not in the inventory.
        vm_uid: vmi
            .owner
            .clone()
            .or_else(|| entry.vm.as_ref().and_then(|vm| vm.uid.clone())),
        address,
        way,
    }
}

fn budget_owner(key: &VmKey, cluster: Option<&ClusterName>) -> BudgetOwner {
    cluster.map_or_else(
        || BudgetOwner::Namespace(key.namespace.clone()),
        |cluster| BudgetOwner::Cluster(cluster.clone()),
    )
}

#[cfg(test)]
mod agent_tests;
#[cfg(test)]
mod gap_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod identity_tests;
#[cfg(test)]
mod join_tests;
#[cfg(test)]
mod label_tests;
#[cfg(test)]
mod older_tests;
#[cfg(test)]
mod order;
#[cfg(test)]
mod pending_tests;
#[cfg(test)]
mod pushed_tests;
#[cfg(test)]
mod scale_tests;
#[cfg(test)]
mod service_tests;
#[cfg(test)]
mod tests;
