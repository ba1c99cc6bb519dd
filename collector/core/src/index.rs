//! The fleet index: takes what the inventory says and what agents answer, and holds the joined truth about every VM.
//!
//! ```text
//! event ─▶ store the fact ─▶ who is touched? ─▶ keys of these ─▶ who shares a key that changed? ─▶ views of both
//! ```
//! An event costs what it touches, not what there is. Whatever the order of events, the same facts end in the same
//! snapshot.

mod change;
mod labels;

pub use self::labels::Owners;

use std::collections::{BTreeMap, HashSet};

use virtfleet_wire::{
    finding::Finding,
    ids::{ClusterName, Uid, VmKey},
};

use self::change::Touched;
use crate::{
    budget::{Payer, ReportBudget},
    detail,
    dial::{DialRules, DialTarget},
    facts::{FactKey, InventoryEvent},
    findings::{self, Gap, keep_since},
    heard::{Failure, FailureClass, Heard},
    snapshot,
    store::{Entry, Store},
    view::{ClusterStand, FleetSnapshot, Gaps, VmDetail, VmState},
};

/// See the module.
#[derive(Debug, Default)]
pub struct FleetIndex {
    store: Store,
    revision: u64,
    /// What was applied since `Init`; none outside a pass.
    pass: Option<HashSet<FactKey>>,
    synced: bool,
    /// Findings about the inventory as its reader has them.
    inventory: Vec<Finding>,
    /// Findings about hosts and clusters that are named and not there, sorted by id and subject.
    dangling: Vec<Finding>,
    /// How each user cluster stands; none when nobody connects to any, because the inventory is a folder.
    stands: Option<BTreeMap<ClusterName, ClusterStand>>,
    budget: ReportBudget,
    /// RFC 3339; see [`FleetIndex::set_time`].
    now: String,
}

impl FleetIndex {
    /// An empty index that dials by `rules`.
    pub fn new(rules: DialRules) -> Self {
        Self {
            store: Store::new(rules),
            ..Self::default()
        }
    }

    /// The time, RFC 3339 in UTC, that findings get as `since` when they are first seen from now on.
    pub fn set_time(&mut self, now: String) {
        self.now = now;
    }

    /// Takes one event. Returns the VMs whose view or dial target may have changed, those that are gone included, sorted.
    ///
    /// Between `Init` and `Synced` nothing disappears: what is deleted then goes at `Synced`, unless it was applied again.
    /// A `Synced` without `Init` removes nothing.
    pub fn apply(&mut self, event: InventoryEvent) -> Vec<VmKey> {
        let mut touched = Touched::default();
        match event {
            InventoryEvent::Init => self.pass = Some(HashSet::new()),
            InventoryEvent::Apply(fact) => {
                let key = fact.key();
                self.put(&key, Some(fact), &mut touched);
                if let Some(pass) = &mut self.pass {
                    pass.insert(key);
                }
            }
            InventoryEvent::Delete(key) => match &mut self.pass {
                Some(pass) => {
                    pass.remove(&key);
                }
                None => self.put(&key, None, &mut touched),
            },
            InventoryEvent::Synced => {
                if let Some(seen) = self.pass.take() {
                    for key in self.known().into_iter().filter(|key| !seen.contains(key)) {
                        self.put(&key, None, &mut touched);
                    }
                }
                self.revision += u64::from(!self.synced);
                self.synced = true;
                self.check_policies();
            }
            InventoryEvent::ServiceNetworks(networks) => {
                if self.store.rules.set_service_networks(networks) {
                    // Each may be dialled elsewhere now, or nowhere.
                    touched.keys.extend(self.store.vms.keys().cloned());
                    touched.views.extend(self.store.vms.keys().cloned());
                    self.revision += 1;
                }
            }
        }
        self.settle(touched)
    }

    /// Takes the end of an attempt to hear an agent. A VM without VMI has nobody who could have answered: that is dropped.
    /// Returns whether it was taken.
    pub fn hear(&mut self, heard: Heard) -> bool {
        let Some(entry) = self
            .store
            .vms
            .get_mut(&heard.vm)
            .filter(|entry| entry.vmi.is_some())
        else {
            return false;
        };
        entry.memory.note_verification(&heard);
        let failure = match heard.outcome {
            Ok(mut answer) => {
                let before = entry.memory.answer.take();
                let before = before
                    .map(|(_, answer)| answer.report.findings)
                    .unwrap_or_default();
                keep_since(&before, &mut answer.report.findings, &self.now);
                entry.memory.note_pace(answer.slow, &self.now);
                entry.memory.answer = Some((heard.at, Box::new(answer)));
                None
            }
            Err(failure) => Some(failure),
        };
        entry.memory.note_try(heard.at, failure, &self.now);
        self.revision += 1;
        let mut touched = Touched::default();
        touched.views.insert(heard.vm);
        self.settle(touched);
        true
    }

    /// As [`FleetIndex::hear`], but only while `dialled` is still the VM's incarnation: an attempt that began before a VM was
    /// replaced says nothing about the one that has its name now.
    pub fn hear_from(&mut self, dialled: Option<&Uid>, heard: Heard) -> bool {
        let vmi = self.store.vms.get(&heard.vm).and_then(|entry| entry.vmi.as_ref());
        vmi.is_some_and(|vmi| vmi.uid.as_ref() == dialled) && self.hear(heard)
    }

    /// Replaces the findings that the inventory's reader has.
    pub fn set_inventory_findings(&mut self, mut findings: Vec<Finding>) {
        findings.sort_by(|a, b| (&a.id, &a.subject).cmp(&(&b.id, &b.subject)));
        keep_since(&self.inventory, &mut findings, &self.now);
        if self.inventory != findings {
            self.inventory = findings;
            self.revision += 1;
        }
    }

    /// Says how each user cluster stands: who connects to them knows. One that has a `UserCluster` and is not in `stands` is
    /// `Pending`. Until this is called first, the inventory counts as a folder: whatever has a `UserCluster` is `Ready`, or
    /// `Suspended`.
    pub fn set_cluster_stands(&mut self, stands: BTreeMap<ClusterName, ClusterStand>) {
        if self.stands.as_ref() != Some(&stands) {
            self.stands = Some(stands);
            self.revision += 1;
        }
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
        let mut clusters = snapshot::clusters(&self.store, self.stands.as_ref());
        for cluster in &mut clusters {
            cluster.partial = gaps.clusters.contains(&cluster.name);
        }
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
            findings: self.inventory.iter().chain(&self.dangling).cloned().collect(),
        }
    }

    /// One VM in full.
    pub fn detail(&self, key: &VmKey) -> Option<VmDetail> {
        detail::detail(&self.store, key)
    }

    /// What there is to know about one VM: the collector's findings, then its guest's.
    pub fn findings(&self, key: &VmKey) -> Vec<Finding> {
        self.store
            .vms
            .get(key)
            .map(|entry| detail::findings(entry))
            .unwrap_or_default()
    }

    /// On whose account the cost of a VM goes.
    pub fn payer(&self, key: &VmKey) -> Payer {
        let entry = self.store.vms.get(key);
        payer(key, entry.and_then(|entry| entry.keys.tenant.cluster()))
    }

    /// Where the agent of a VM is to be dialled now, or why it cannot be.
    pub fn dial(&self, key: &VmKey) -> Result<DialTarget, Failure> {
        let refuse = |message: String| Failure::new(FailureClass::NoAddress, message);
        let entry = self.store.vms.get(key);
        let entry = entry.ok_or_else(|| refuse(format!("there is no VM {key} in the inventory")))?;
        let state = entry.view.as_ref().map(|view| view.state);
        let vmi = entry
            .vmi
            .as_deref()
            .filter(|_| state.is_some_and(VmState::can_answer));
        let vmi = vmi.ok_or_else(|| {
            let state = state.map_or("unknown", VmState::as_str);
            refuse(format!("{key} is {state}, so nobody can answer"))
        })?;
        Ok(DialTarget {
            key: key.clone(),
            uid: vmi.uid.clone(),
            vm_uid: entry.vm.as_ref().and_then(|vm| vm.uid.clone()),
            address: self.store.address_of(vmi)?,
        })
    }

    /// Whether the agent of a VM could answer now.
    pub fn can_answer(&self, key: &VmKey) -> bool {
        self.store
            .vms
            .get(key)
            .and_then(|entry| entry.view.as_ref())
            .is_some_and(|view| view.state.can_answer())
    }

    /// Every VM whose agent could answer, sorted; [`FleetIndex::dial`] says where, or why not.
    pub fn targets(&self) -> Vec<VmKey> {
        let could = |entry: &Entry| entry.view.as_ref().is_some_and(|view| view.state.can_answer());
        let vms = self.store.vms.iter().filter(|(_, entry)| could(entry));
        vms.map(|(key, _)| key.clone()).collect()
    }
}

fn payer(key: &VmKey, cluster: Option<&ClusterName>) -> Payer {
    cluster.map_or_else(
        || Payer::Namespace(key.namespace.clone()),
        |cluster| Payer::Cluster(cluster.clone()),
    )
}

#[cfg(test)]
mod agent_tests;
#[cfg(test)]
mod gap_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod label_tests;
#[cfg(test)]
mod older_tests;
#[cfg(test)]
mod order;
#[cfg(test)]
mod pending_tests;
#[cfg(test)]
mod scale_tests;
#[cfg(test)]
mod service_tests;
#[cfg(test)]
mod tests;
