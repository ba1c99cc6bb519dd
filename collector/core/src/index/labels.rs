//! The index for the label planner: policies and past migrations as facts, and the input of one
//! VM's plan.

use std::collections::BTreeSet;

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, Namespace, NodeName, Uid, VmKey},
};

use super::{FleetIndex, replace, touched::Touched};
use crate::{
    facts::{Labels, UserCluster, VmiMove},
    findings, join,
    labels::{plan::LabelInput, policy::LabelPolicy},
    store::VmEntry,
};

impl FleetIndex {
    pub(super) fn put_policy(&mut self, name: &str, new: Option<LabelPolicy>, touched: &mut Touched) -> bool {
        let policies = &mut self.store.policies;
        if policies.get(name) == new.as_ref() {
            return false;
        }
        let old = match new.clone() {
            Some(policy) => policies.insert(name.to_owned(), policy),
            None => policies.remove(name),
        };
        let selects = |labels: &Labels| {
            let either = old.iter().chain(&new);
            either.into_iter().any(|policy| policy.clusters.matches(labels))
        };
        let store = &self.store;
        let of = |entry: &VmEntry| {
            let cluster = entry
                .keys
                .tenant
                .cluster()
                .and_then(|name| store.clusters.get(name));
            cluster.is_some_and(|cluster| selects(&cluster.labels))
        };
        let affected = store.vms.iter().filter(|(_, entry)| of(entry));
        touched.labels.extend(affected.map(|(key, _)| key.clone()));
        if new.is_none() {
            self.set_dangling(false, selects_nothing(name));
        }
        self.check_policies();
        true
    }

    /// Updates the findings about policies that select no user cluster. Before the first full read
    /// there may be more clusters.
    pub(super) fn check_policies(&mut self) {
        if !self.synced {
            return;
        }
        let store = &self.store;
        let selects = |policy: &LabelPolicy| {
            let mut clusters = store.clusters.values();
            clusters.any(|cluster| policy.clusters.matches(&cluster.labels))
        };
        let policies = store.policies.values();
        let checked: Vec<_> = policies
            .map(|policy| (policy.name.clone(), selects(policy)))
            .collect();
        for (name, selects) in checked {
            self.set_dangling(!selects, selects_nothing(&name));
        }
    }

    /// Replaces the findings about labels of Nodes.
    pub fn set_label_findings(&mut self, findings: Vec<Finding>) {
        let is_changed = replace(&mut self.label_findings, findings, &self.now);
        self.revision += u64::from(is_changed);
    }

    pub(super) fn put_move(
        &mut self,
        namespace: &Namespace,
        name: &str,
        new: Option<VmiMove>,
        touched: &mut Touched,
    ) -> bool {
        let moves = &mut self.store.moves;
        let key = (namespace.clone(), name.to_owned());
        if moves.get(&key) == new.as_ref() {
            return false;
        }
        let vm = new.as_ref().map(|new| new.vm.clone());
        let old = match new {
            Some(new) => moves.insert(key.clone(), new),
            None => moves.remove(&key),
        };
        if let Some(old) = old {
            if let Some(names) = self.store.moves_by_vm.get_mut(&old.vm) {
                names.remove(name);
                if names.is_empty() {
                    self.store.moves_by_vm.remove(&old.vm);
                }
            }
            touched.views.insert(old.vm.clone());
            touched.labels.insert(old.vm);
        }
        if let Some(vm) = vm {
            let names = self.store.moves_by_vm.entry(vm.clone()).or_default();
            names.insert(name.to_owned());
            touched.views.insert(vm.clone());
            touched.labels.insert(vm);
        }
        true
    }

    /// Touches the VMs that ran on an infra node before: its changed labels may make values on
    /// their Nodes outdated. Hosts are relabelled rarely, so this scans all migrations and needs no
    /// index.
    pub(super) fn touch_moved_from(&self, node: &NodeName, touched: &mut Touched) {
        let store = &self.store;
        let moves = store.moves.values();
        let moves = moves
            .filter(|one| one.source.as_ref() == Some(node))
            .map(|one| &one.vm);
        let last = store.vms.iter().filter(|(_, entry)| {
            let migration = entry.vmi.as_ref().and_then(|vmi| vmi.migration.as_ref());
            migration.is_some_and(|migration| migration.source.as_ref() == Some(node))
        });
        touched
            .labels
            .extend(moves.chain(last.map(|(key, _)| key)).cloned());
    }

    /// Input of the label plan for a VM's Node. None before the inventory was read completely, and
    /// for a VM without user cluster or without a Node that is confirmed
    /// ([`join::confirmed_node`]).
    pub fn label_input(&self, key: &VmKey) -> Option<LabelInput> {
        let (entry, name, cluster) = self.writable(key)?;
        let store = &self.store;
        let node = join::confirmed_node(store, key, entry)?;
        let vmi = entry.vmi.as_deref();
        let host = vmi
            .and_then(|vmi| vmi.node.as_ref())
            .and_then(|name| store.infra_nodes.get(name));
        let policies = store.policies.values();
        Some(LabelInput {
            vm: key.clone(),
            vmi_uid: vmi.and_then(|vmi| vmi.uid.clone()),
            cluster: name.clone(),
            cluster_labels: cluster.labels.clone(),
            suspended: cluster.suspend,
            node: node.name.clone(),
            node_uid: node.uid.clone(),
            labels: node.labels.clone(),
            owned: node.owned.clone(),
            kubelet_labels: node.kubelet_labels.clone(),
            resource_version: node.resource_version.clone(),
            host: host.cloned(),
            unconfirmed: BTreeSet::new(),
            stood_on: self.stood_on(key, entry),
            policies: policies
                .filter(|policy| policy.clusters.matches(&cluster.labels))
                .cloned()
                .collect(),
        })
    }

    /// A VM with its user cluster. None before the inventory was read completely: no Node may be
    /// changed then.
    pub(super) fn writable(&self, key: &VmKey) -> Option<(&VmEntry, &ClusterName, &UserCluster)> {
        if !self.synced {
            return None;
        }
        let entry = self.store.vms.get(key).filter(|entry| self.is_followed(entry))?;
        let name = entry.keys.tenant.cluster()?;
        Some((entry, name, self.store.clusters.get(name)?))
    }

    /// Labels of the infra nodes from which the VM was migrated. Only recorded migrations are used:
    /// a move that this process happened to observe would make the plan depend on its uptime.
    fn stood_on(&self, key: &VmKey, entry: &VmEntry) -> Vec<Labels> {
        let store = &self.store;
        let last = entry.vmi.as_deref().and_then(|vmi| vmi.migration.as_ref());
        let last = last.and_then(|migration| migration.source.as_ref());
        let names = store.moves_by_vm.get(key).into_iter().flatten();
        let earlier = names.filter_map(|name| {
            let found = store.moves.get(&(key.namespace.clone(), name.clone()))?;
            found.source.as_ref()
        });
        let hosts: BTreeSet<&NodeName> = last.into_iter().chain(earlier).collect();
        hosts
            .into_iter()
            .filter_map(|name| Some(store.infra_nodes.get(name)?.labels.clone()))
            .collect()
    }

    /// All policies, by name.
    pub fn policies(&self) -> impl Iterator<Item = &LabelPolicy> {
        self.store.policies.values()
    }

    /// The labels of every `UserCluster`.
    pub fn cluster_labels(&self) -> impl Iterator<Item = &Labels> {
        self.store.clusters.values().map(|cluster| &cluster.labels)
    }

    /// Every VM whose Node may be written to, sorted: those with a [`FleetIndex::label_input`], and
    /// those from whose Node conditions are removed.
    pub fn written(&self) -> Vec<VmKey> {
        let vms = self.store.vms.iter();
        let vms = vms.filter(|(key, entry)| self.is_written(key, entry));
        vms.map(|(key, _)| key.clone()).collect()
    }

    /// The user cluster in which a VM has a Node that may be written to; see
    /// [`FleetIndex::written`].
    pub fn written_cluster(&self, key: &VmKey) -> Option<ClusterName> {
        let entry = self.store.vms.get(key).filter(|_| self.synced)?;
        let cluster = entry.keys.tenant.cluster();
        cluster.filter(|_| self.is_written(key, entry)).cloned()
    }

    fn is_written(&self, key: &VmKey, entry: &VmEntry) -> bool {
        let node = join::confirmed_node(&self.store, key, entry);
        let node = node.or_else(|| join::unconfirmed_node(&self.store, key, entry));
        self.is_followed(entry) && node.is_some()
    }

    /// The UIDs of a VM's `VirtualMachine` and VMI, if they exist.
    pub fn owners(&self, key: &VmKey) -> Owners {
        let entry = self.store.vms.get(key);
        Owners {
            vm: entry.and_then(|entry| entry.vm.as_ref()?.uid.clone()),
            vmi: entry.and_then(|entry| entry.vmi.as_ref()?.uid.clone()),
        }
    }

    /// Whether the inventory has been read completely at least once.
    pub fn synced(&self) -> bool {
        self.synced
    }
}

fn selects_nothing(policy: &str) -> Finding {
    let message = format!("the LabelPropagation {policy} selects no UserCluster, so it has no effect");
    let subject = ("LabelPropagation", policy);
    Finding::new(
        findings::POLICY_SELECTS_NOTHING,
        Severity::Warning,
        subject,
        "PolicySelectsNothing",
        message,
    )
    .remedy("compare its spec.clusterSelector with: kubectl get userclusters --show-labels")
}

/// Owners of the objects that the collector writes about a VM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owners {
    /// UID of the `VirtualMachine`.
    pub vm: Option<Uid>,
    /// UID of the `VirtualMachineInstance`.
    pub vmi: Option<Uid>,
}
