//! Applies a changed fact to the index: stores it, finds the affected VMs, and updates keys, then
//! views.

use super::touched::Touched;
use std::{collections::BTreeSet, sync::Arc};

use virtfleet_wire::ids::{ClusterName, Namespace, NodeName, VmKey, VmName};

use super::{FleetIndex, budget_owner};
use crate::{
    derive,
    facts::{Fact, FactKey, InfraNode, LauncherPod, UserCluster, UserNode},
    findings::keep_since,
    keys::{Keys, SharedValue, move_under},
    pull_history::PullHistory,
    store::VmEntry,
};

impl FleetIndex {
    /// The keys of all objects.
    pub(super) fn known(&self) -> Vec<FactKey> {
        let store = &self.store;
        let instances = store
            .vms
            .iter()
            .filter(|(_, e)| e.vmi.is_some())
            .map(|(key, _)| FactKey::Vmi(key.clone()));
        let vms = store
            .vms
            .iter()
            .filter(|(_, e)| e.vm.is_some())
            .map(|(key, _)| FactKey::Vm(key.clone()));
        let nodes = store.infra_nodes.keys().cloned().map(FactKey::InfraNode);
        let clusters = store.clusters.keys().cloned().map(FactKey::UserCluster);
        let user_nodes = store.user_nodes.iter().flat_map(|(cluster, nodes)| {
            nodes
                .keys()
                .map(|node| FactKey::UserNode(cluster.clone(), node.clone()))
        });
        let moves = store
            .moves
            .keys()
            .map(|(namespace, name)| FactKey::VmiMove(namespace.clone(), name.clone()));
        let launchers = store
            .launchers
            .keys()
            .map(|(namespace, name)| FactKey::LauncherPod(namespace.clone(), name.clone()));
        let policies = store.policies.keys().cloned().map(FactKey::Policy);
        let namespaces = store.ignored_namespaces.iter().cloned().map(FactKey::Namespace);
        instances
            .chain(moves)
            .chain(launchers)
            .chain(policies)
            .chain(namespaces)
            .chain(vms)
            .chain(nodes)
            .chain(clusters)
            .chain(user_nodes)
            .collect()
    }

    /// Stores or removes a fact and collects the affected VMs; an equal fact affects none.
    pub(super) fn put(&mut self, key: &FactKey, mut fact: Option<Fact>, touched: &mut Touched) {
        if let Some(labels) = fact.as_mut().and_then(Fact::labels_mut) {
            self.store.strings.share(labels);
        }
        if let Some(conditions) = fact.as_mut().and_then(Fact::conditions_mut) {
            self.store.strings.share_strings(conditions.words_mut());
        }
        if let Some(Fact::Vmi(vmi)) = &mut fact {
            self.store.scheduling.share(&mut vmi.scheduling);
        }
        let changed = match (key, fact) {
            (FactKey::Vmi(vm), Some(Fact::Vmi(new))) => self.put_vm(vm, touched, |entry| {
                let changed = entry.vmi.as_ref() != Some(&new);
                // Another UID is another machine: earlier pulls do not apply to it.
                if entry.vmi.as_ref().is_some_and(|old| old.uid != new.uid) {
                    entry.pulls = PullHistory::default();
                    entry.health = None;
                }
                entry.vmi = Some(new);
                changed
            }),
            (FactKey::Vmi(vm), _) => self.put_vm(vm, touched, |entry| {
                entry.pulls = PullHistory::default();
                entry.vmi.take().is_some()
            }),
            (FactKey::Vm(vm), Some(Fact::Vm(new))) => self.put_vm(vm, touched, |entry| {
                let old = entry.vm.replace(new);
                old != entry.vm
            }),
            (FactKey::Vm(vm), _) => self.put_vm(vm, touched, |entry| entry.vm.take().is_some()),
            (FactKey::InfraNode(name), Some(Fact::InfraNode(new))) => {
                self.put_infra_node(name, Some(new), touched)
            }
            (FactKey::InfraNode(name), _) => self.put_infra_node(name, None, touched),
            (FactKey::UserCluster(name), Some(Fact::UserCluster(new))) => {
                self.put_cluster(name, Some(new), touched)
            }
            (FactKey::UserCluster(name), _) => self.put_cluster(name, None, touched),
            (FactKey::UserNode(cluster, name), Some(Fact::UserNode(new))) => {
                self.put_user_node(cluster, name, Some(new), touched)
            }
            (FactKey::UserNode(cluster, name), _) => self.put_user_node(cluster, name, None, touched),
            (FactKey::VmiMove(namespace, name), Some(Fact::VmiMove(new))) => {
                self.put_move(namespace, name, Some(new), touched)
            }
            (FactKey::VmiMove(namespace, name), _) => self.put_move(namespace, name, None, touched),
            (FactKey::LauncherPod(namespace, name), Some(Fact::LauncherPod(new))) => {
                self.put_launcher(namespace, name, Some(new), touched)
            }
            (FactKey::LauncherPod(namespace, name), _) => self.put_launcher(namespace, name, None, touched),
            (FactKey::Policy(name), Some(Fact::Policy(new))) => self.put_policy(name, Some(*new), touched),
            (FactKey::Policy(name), _) => self.put_policy(name, None, touched),
            (FactKey::Namespace(name), fact) => {
                let is_ignored = matches!(&fact, Some(Fact::Namespace(one)) if one.is_ignored);
                self.put_namespace(name, is_ignored, touched)
            }
        };
        self.revision += u64::from(changed);
    }

    fn put_vm(
        &mut self,
        vm: &VmKey,
        touched: &mut Touched,
        change: impl FnOnce(&mut VmEntry) -> bool,
    ) -> bool {
        let entry = self.store.vms.entry(vm.clone()).or_default();
        let changed = change(entry);
        if changed {
            touched.views.insert(vm.clone());
        } else if entry.vmi.is_none() && entry.vm.is_none() {
            self.store.vms.remove(vm);
        }
        changed
    }

    fn put_infra_node(&mut self, name: &NodeName, mut new: Option<InfraNode>, touched: &mut Touched) -> bool {
        let (heartbeats, now_ms) = (&mut self.store.heartbeats, self.now_ms);
        if new.is_none() {
            heartbeats.remove_node(None, name);
        }
        // A heartbeat alone is no change.
        let reported_ms = new.as_mut().and_then(|new| new.reported_ms.take());
        let is_heard_again = reported_ms.is_some_and(|at| heartbeats.set_status(None, name, at, now_ms));
        let nodes = &mut self.store.infra_nodes;
        if nodes.get(name) == new.as_ref() {
            if is_heard_again {
                self.touch_hosts(std::slice::from_ref(name));
            }
            return false;
        }
        self.infra_generation += 1;
        let now = new.as_ref().map(|node| node.labels.clone());
        let old = match new {
            Some(node) => nodes.insert(name.clone(), node),
            None => nodes.remove(name),
        };
        if old.map(|node| node.labels) != now {
            self.touch_moved_from(name, touched);
        }
        touched
            .views
            .extend(self.store.vms_by_host.get(name).into_iter().flatten().cloned());
        self.check_host(name);
        true
    }

    fn put_cluster(&mut self, name: &ClusterName, new: Option<UserCluster>, touched: &mut Touched) -> bool {
        if self.store.clusters.get(name) == new.as_ref() {
            return false;
        }
        if new.is_none() {
            self.store.heartbeats.remove_cluster(name);
        }
        let after = new.clone();
        let before = self.store.set_cluster(name, new);
        self.touch_selected(before.as_ref(), after.as_ref(), touched);
        let labels = |cluster: &UserCluster| cluster.labels.clone();
        if before.as_ref().map(labels) != after.as_ref().map(labels) {
            self.check_policies();
        }
        touched.views.extend(
            self.store
                .vms_by_cluster_label
                .get(name)
                .into_iter()
                .flatten()
                .cloned(),
        );
        self.check_cluster(name);
        true
    }

    /// VMs that only the old or only the new selector matches get new keys. The desired labels of
    /// VMs that stay selected may change.
    ///
    /// Walks over the namespace once and tries two selectors on each VM: hundreds of clusters may
    /// share a namespace, and trying all selectors on all its VMs would be quadratic.
    fn touch_selected(
        &self,
        before: Option<&UserCluster>,
        after: Option<&UserCluster>,
        touched: &mut Touched,
    ) {
        let policy = |cluster: &UserCluster| {
            (
                cluster.labels.clone(),
                cluster.suspend,
                cluster.node_conditions.clone(),
            )
        };
        let relabel = before.map(policy) != after.map(policy);
        let relay = |cluster: &UserCluster| cluster.relay.clone();
        let reroute = before.map(relay) != after.map(relay);
        let both = [before, after];
        let namespaces: BTreeSet<_> = both.iter().flatten().map(|cluster| &cluster.namespace).collect();
        let store = &self.store;
        let vms = namespaces
            .into_iter()
            .filter_map(|one| store.vms_by_namespace.get(one));
        for vm in vms.flatten() {
            let Some(entry) = store.vms.get(vm) else { continue };
            let [was, is] = both.map(|cluster| {
                cluster
                    .is_some_and(|cluster| cluster.namespace == vm.namespace && store.selects(cluster, entry))
            });
            if was != is {
                touched.keys.insert(vm.clone());
            }
            if relabel && (was || is) {
                touched.labels.insert(vm.clone());
            }
            if reroute && (was || is) {
                touched.views.insert(vm.clone());
            }
        }
    }

    fn put_user_node(
        &mut self,
        cluster: &ClusterName,
        name: &NodeName,
        new: Option<UserNode>,
        touched: &mut Touched,
    ) -> bool {
        let (heartbeats, now_ms) = (&mut self.store.heartbeats, self.now_ms);
        if new.is_none() {
            heartbeats.remove_node(Some(cluster), name);
        }
        let reported_ms = new.as_ref().and_then(|new| new.reported_ms);
        let is_heard_again =
            reported_ms.is_some_and(|at| heartbeats.set_status(Some(cluster), name, at, now_ms));
        match (self.store.user_node(cluster, name), &new) {
            (None, None) => return false,
            (Some(old), Some(new)) if old.same_except_version(new) && !is_heard_again => {
                // A heartbeat: store the version, which the next patch needs.
                self.store.set_user_node(cluster, name, Some(new.clone()));
                return false;
            }
            _ => {}
        }
        let uid = |node: &UserNode| node.uid.clone();
        let before = self.store.user_node(cluster, name);
        let (uids, machines) = (
            (before.and_then(uid), new.as_ref().and_then(uid)),
            [before, new.as_ref()].map(|node| node.and_then(|node| node.system_uuid)),
        );
        let provider = |node: &UserNode| node.provider_vm();
        let mut named: Vec<_> = new.as_ref().and_then(provider).into_iter().collect();
        let old = self.store.set_user_node(cluster, name, new);
        named.extend(old.as_ref().and_then(provider));
        let named = named.iter().map(VmName::as_str).chain([name.as_str()]);
        touched
            .views
            .extend(named.filter_map(|vm| self.store.vm_in(cluster, vm)));
        let claimed = SharedValue::Hostname(cluster.clone(), name.clone());
        touched
            .views
            .extend(self.store.shared_values.members(&claimed).cloned());
        let namespace = self.store.clusters.get(cluster).map(|cluster| &cluster.namespace);
        for uuid in machines.into_iter().flatten() {
            let firmware = SharedValue::Firmware(uuid);
            let vms = self.store.shared_values.members(&firmware);
            let vms = vms.filter(|vm| Some(&vm.namespace) == namespace);
            touched.views.extend(vms.cloned());
        }
        let changed = self
            .store
            .shared_nodes
            .replace(cluster, uids.0.as_ref(), uids.1.as_ref());
        for cluster in &changed {
            self.check_shared(cluster);
            self.touch_members(cluster, touched);
        }
        self.check_cluster(cluster);
        true
    }

    /// Touches all VMs of a cluster.
    fn touch_members(&self, name: &ClusterName, touched: &mut Touched) {
        let store = &self.store;
        let namespace = store.clusters.get(name).map(|cluster| &cluster.namespace);
        let vms = namespace.and_then(|namespace| store.vms_by_namespace.get(namespace));
        let is_member = |vm: &&VmKey| {
            let entry = store.vms.get(*vm);
            entry.is_some_and(|entry| entry.keys.tenant.cluster() == Some(name))
        };
        touched
            .views
            .extend(vms.into_iter().flatten().filter(is_member).cloned());
    }

    fn put_launcher(
        &mut self,
        namespace: &Namespace,
        name: &str,
        new: Option<LauncherPod>,
        touched: &mut Touched,
    ) -> bool {
        let known = self.store.launchers.get(&(namespace.clone(), name.to_owned()));
        if known == new.as_ref() {
            return false;
        }
        touched.views.extend(new.as_ref().and_then(LauncherPod::key));
        let had_any = self.store.has_launchers(namespace);
        let old = self.store.set_launcher(namespace, name, new);
        // Of a live cluster all pods are known, however many there are.
        if self.statuses.is_none() && had_any != self.store.has_launchers(namespace) {
            let others = self.store.vms_by_namespace.get(namespace);
            touched.views.extend(others.into_iter().flatten().cloned());
        }
        touched.views.extend(old.as_ref().and_then(LauncherPod::key));
        true
    }

    /// Updates keys, then views, of the affected VMs. Returns all VMs that may have changed,
    /// sorted.
    pub(super) fn update_affected(&mut self, touched: Touched) -> Vec<VmKey> {
        let Touched {
            keys,
            mut views,
            labels,
        } = touched;
        for vm in keys.union(&views).cloned().collect::<Vec<_>>() {
            self.update_keys(&vm, &mut views);
        }
        let over: Vec<_> = views.iter().flat_map(|vm| self.update_budget(vm)).collect();
        views.extend(over);
        for vm in &views {
            self.observe_plugging(vm);
            self.observe_dead_migration(vm);
            self.observe_migrations(vm);
            let Some(entry) = self.store.vms.get_mut(vm) else {
                continue;
            };
            let before = Self::before(entry);
            let health = entry.health.take();
            let Some(entry) = self.store.vms.get(vm) else {
                continue;
            };
            let conditions_key = entry.view.as_ref().map(|view| view.health.conditions_key);
            let (mut view, mut found) = derive::view(&self.store, vm, entry);
            keep_since(before.findings(), &mut found, &self.now);
            let health = self.track_health(vm, health, &view, &found);
            view.health = health.as_ref().map(|track| track.view()).unwrap_or_default();
            if conditions_key != Some(view.health.conditions_key) {
                self.changed_conditions.insert(vm.clone());
            }
            if let Some(entry) = self.store.vms.get_mut(vm) {
                entry.view = Some(Arc::new(view));
                entry.findings = found;
                entry.health = health;
            }
            self.record_changes(vm, &before);
        }
        views.extend(labels);
        views.into_iter().collect()
    }

    /// Counts the size of a VM's complete report. Returns the VMs whose reports were dropped to
    /// keep the budget.
    fn update_budget(&mut self, vm: &VmKey) -> Vec<VmKey> {
        let Some(entry) = self.store.vms.get(vm) else {
            return Vec::new();
        };
        let answer = entry.pulls.answer.as_ref();
        let bytes = answer.map_or(0, |(_, answer)| answer.report.kept_bytes());
        let budget_owner = budget_owner(vm, entry.keys.tenant.cluster());
        let over = self.budget.set(vm, &budget_owner, bytes);
        for vm in &over {
            if let Some(entry) = self.store.vms.get_mut(vm)
                && let Some((_, answer)) = &mut entry.pulls.answer
            {
                answer.report.drop_document();
            }
        }
        over
    }

    /// Updates one VM's keys, and adds to `views` all VMs whose view depends on the change. Removes
    /// a VM that has neither VMI nor VirtualMachine.
    fn update_keys(&mut self, vm: &VmKey, views: &mut BTreeSet<VmKey>) {
        let Some(entry) = self.store.vms.get(vm) else {
            return;
        };
        let gone = entry.vmi.is_none() && entry.vm.is_none();
        let old = entry.keys.clone();
        let new = if gone {
            Keys::default()
        } else {
            derive::keys(&self.store, vm, entry)
        };
        let namespace = Some(&vm.namespace);
        move_under(
            &mut self.store.vms_by_namespace,
            vm,
            namespace.filter(|_| gone),
            namespace.filter(|_| !gone),
        );
        if gone {
            self.store.vms.remove(vm);
            self.budget.remove(vm);
        }
        if old == new {
            return;
        }
        views.insert(vm.clone());
        self.store
            .shared_values
            .update(vm, &old.shared_values, &new.shared_values, views);
        if old.tenant != new.tenant
            && let Ok(hostname) = vm.name.as_str().parse::<NodeName>()
        {
            for cluster in [old.tenant.cluster(), new.tenant.cluster()].into_iter().flatten() {
                let claimed = SharedValue::Hostname(cluster.clone(), hostname.clone());
                views.extend(self.store.shared_values.members(&claimed).cloned());
                // The Node of that name may run on the machine of another VM.
                let node = self.store.user_node(cluster, &hostname);
                if let Some(uuid) = node.and_then(|node| node.system_uuid) {
                    let firmware = SharedValue::Firmware(uuid);
                    views.extend(self.store.shared_values.members(&firmware).cloned());
                }
            }
        }
        let labelled = |keys: &Keys| keys.cluster_label.as_ref().map(|label| label.cluster.clone());
        move_under(
            &mut self.store.vms_by_cluster_label,
            vm,
            labelled(&old).as_ref(),
            labelled(&new).as_ref(),
        );
        let hosts = (old.host.clone(), new.host.clone());
        if let Some(entry) = self.store.vms.get_mut(vm) {
            entry.keys = new;
        }
        move_under(
            &mut self.store.vms_by_host,
            vm,
            hosts.0.as_ref(),
            hosts.1.as_ref(),
        );
        for host in [hosts.0, hosts.1].iter().flatten() {
            self.check_host(host);
        }
    }
}
