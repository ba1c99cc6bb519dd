//! Health of the VMs: collects the facts about one VM, and follows the time.

use std::{collections::BTreeSet, sync::Arc};

use virtfleet_wire::{
    finding::Finding,
    ids::{ClusterName, VmKey},
};

use super::{FleetIndex, stale::StaleInventory, touched::Touched};
use crate::{
    agent,
    contention::{HostContention, NeighbourVm},
    derive,
    facts::{Migration, Vmi},
    health::{AgentFacts, HealthFacts, HealthTrack, LauncherState, SeenSince, needs_comparison},
    keys::NodeMatch,
    snapshot,
    store::VmEntry,
    view::{ClusterState, VmView},
};

impl FleetIndex {
    /// Updates the health of every VM for which the time changes something. Call it every few
    /// seconds, after [`FleetIndex::set_time`].
    pub fn settle(&mut self) {
        let is_due = |entry: &VmEntry| {
            let due = entry.health.as_ref().and_then(|track| track.due_ms());
            due.is_some_and(|due| due <= self.now_ms)
        };
        let vms = self.store.vms.iter().filter(|(_, entry)| is_due(entry));
        let due: Vec<VmKey> = vms.map(|(key, _)| key.clone()).collect();
        for vm in &due {
            self.refresh_health(vm);
        }
        self.settle_stories();
    }

    /// Recomputes the health of all VMs; returns their number. For measurements.
    pub fn recompute_health(&mut self) -> usize {
        let all: Vec<VmKey> = self.store.vms.keys().cloned().collect();
        for vm in &all {
            self.refresh_health(vm);
        }
        all.len()
    }

    /// Updates the health of one VM; its other facts have not changed.
    pub(super) fn refresh_health(&mut self, vm: &VmKey) {
        let Some(entry) = self.store.vms.get_mut(vm) else {
            return;
        };
        let (Some(view), before) = (entry.view.clone(), entry.health.take()) else {
            return;
        };
        let found = std::mem::take(&mut entry.findings);
        let track = self.track_health(vm, before, &view, &found);
        let health = track.as_ref().map(|track| track.view()).unwrap_or_default();
        let is_changed = view.health != health;
        if view.health.conditions_key != health.conditions_key {
            self.changed_conditions.insert(vm.clone());
        }
        if let Some(entry) = self.store.vms.get_mut(vm) {
            entry.findings = found;
            entry.health = track;
            if is_changed {
                let mut view = VmView::clone(&view);
                if self.synced {
                    entry.story.observe_health(&health, self.now_ms);
                }
                view.health = health;
                entry.view = Some(Arc::new(view));
                self.revision += 1;
            }
        }
    }

    /// The health of a VM with this view and these findings of the collector, after `before`.
    pub(super) fn track_health(
        &self,
        vm: &VmKey,
        before: Option<Box<HealthTrack>>,
        view: &VmView,
        found: &[Finding],
    ) -> Option<Box<HealthTrack>> {
        let entry = self.store.vms.get(vm)?;
        let (state, has_vmi, now_ms) = (view.state, entry.vmi.is_some(), self.now_ms);
        let seen = before.as_ref().map_or_else(
            || SeenSince::first(state, has_vmi, now_ms),
            |track| track.seen().then(state, has_vmi, now_ms),
        );
        let contention = self.contention(vm, entry);
        let facts = HealthFacts {
            contention: contention.as_ref(),
            ..self.health_facts(vm, entry, view, found, seen)
        };
        Some(match before {
            Some(mut track) => {
                // While the inventory is read for the first time, each object is a change.
                track.observe(&facts, self.holds);
                track
            }
            None => Box::new(HealthTrack::new(&facts)),
        })
    }

    fn health_facts<'a>(
        &'a self,
        vm: &'a VmKey,
        entry: &'a VmEntry,
        view: &'a VmView,
        found: &'a [Finding],
        seen: SeenSince,
    ) -> HealthFacts<'a> {
        let store = &self.store;
        let cluster = entry.keys.tenant.cluster();
        let pulls = &entry.pulls;
        let failure = pulls.last_try.as_ref().and_then(|(_, failure)| failure.as_ref());
        HealthFacts {
            key: vm,
            now_ms: self.now_ms,
            vmi: entry.vmi.as_deref(),
            vm: entry.vm.as_ref(),
            state: view.state,
            seen,
            started_ms: entry.vmi.as_deref().and_then(|vmi| self.started_ms(vmi)),
            launcher: self.launcher_state(vm, entry),
            host: view.infra_node.as_ref(),
            infra_node: view
                .infra_node
                .as_ref()
                .and_then(|host| store.infra_nodes.get(host)),
            tenant: &entry.keys.tenant,
            is_tenant_pending: entry.keys.cluster_label.is_some(),
            cluster_state: cluster.and_then(|name| self.cluster_state(name)),
            node_match: &entry.keys.node_match,
            other_node_created_ms: match &entry.keys.node_match {
                NodeMatch::Contradicts(node) => {
                    let node = cluster.and_then(|cluster| store.user_node(cluster, node));
                    node.and_then(|node| node.created_ms)
                }
                _ => None,
            },
            user_node: cluster
                .zip(view.user_node.as_ref())
                .and_then(|(cluster, node)| store.user_node(cluster, node)),
            host_heartbeat: view
                .infra_node
                .as_ref()
                .and_then(|host| store.heartbeats.limits(None, host)),
            node_heartbeat: cluster
                .zip(view.user_node.as_ref())
                .and_then(|(cluster, node)| store.heartbeats.limits(Some(cluster), node)),
            agent: AgentFacts {
                status: view.agent.status,
                excluded_by: derive::excluded_by(store, entry),
                is_expected: agent::is_expected(entry, failure),
                failure,
                last_try_ms: pulls.last_try.as_ref().map(|(at, _)| *at),
                answer: pulls.answer.as_ref().map(|(at, answer)| (*at, &**answer)),
            },
            delivery: store.delivery.of(vm, cluster),
            usage: pulls.usage,
            is_usage_pending: pulls.is_usage_pending,
            contention: None,
            failed_migrations: entry.story.failures(),
            dead_migration: &entry.dead_migration,
            findings: found,
            is_inventory_stale: self.stale.affects(vm),
            volumes: entry.volumes.as_deref(),
            plugging: &entry.plugging,
        }
    }

    fn launcher_state(&self, vm: &VmKey, entry: &VmEntry) -> LauncherState {
        let on = |vmi: &Vmi, node| self.store.launcher(&Vmi { node, ..vmi.clone() }).is_some();
        // The guest may run on the target before KubeVirt says so.
        let may_have_moved = |vmi: &Vmi| {
            let target = vmi.migration.as_ref().and_then(|one| one.target.clone());
            target.is_some() && on(vmi, target)
        };
        let carries = |vmi: &Vmi| self.store.launcher(vmi).is_some();
        // Of a live cluster all pods have been listed; a folder may have none.
        let are_known = || self.statuses.is_some() || self.store.has_launchers(&vm.namespace);
        if entry.vmi.as_deref().is_some_and(carries) {
            LauncherState::Carries
        } else if entry.vmi.as_deref().is_some_and(may_have_moved) {
            LauncherState::NotWatched
        } else if self.synced && are_known() && !self.stale.affects(vm) {
            LauncherState::Gone
        } else {
            LauncherState::NotWatched
        }
    }

    /// When a VMI began to run: by KubeVirt, else by its pod, which is younger after a migration.
    fn started_ms(&self, vmi: &Vmi) -> Option<u64> {
        let pod = || self.store.launcher(vmi).and_then(|pod| pod.started_ms);
        vmi.running_since_ms.or_else(pod)
    }

    /// Compares a VM with the others of its infra node; none if it uses and gets what it should.
    fn contention(&self, vm: &VmKey, entry: &VmEntry) -> Option<HostContention> {
        let usage = entry.pulls.usage.filter(|usage| needs_comparison(*usage))?;
        let host = entry.keys.host.as_ref()?;
        let members = self.store.vms_by_host.get(host)?;
        let allocatable = self.store.infra_nodes.get(host).and_then(|node| node.allocatable);
        let own = NeighbourVm {
            usage: Some(usage),
            ..entry.as_neighbour(vm, self.now_ms)
        };
        let others = members.iter().filter_map(|key| {
            let other = self.store.vms.get(key)?;
            Some(other.as_neighbour(key, self.now_ms))
        });
        let cpu_milli = allocatable.map(|one| one.resources.cpu_milli);
        Some(HostContention::of(&own, cpu_milli, others))
    }

    fn cluster_state(&self, name: &ClusterName) -> Option<ClusterState> {
        let cluster = self.store.clusters.get(name)?;
        Some(snapshot::cluster_status(&self.store, cluster, self.statuses.as_ref()).state)
    }

    /// Replaces what is known of the delivery of VMs' metrics.
    pub fn set_metrics_delivery(&mut self, delivery: crate::mla::delivery::MetricsDelivery) {
        if self.store.delivery == delivery {
            return;
        }
        let before = std::mem::replace(&mut self.store.delivery, delivery);
        let after = &self.store.delivery;
        let affected = self.store.vms.iter().filter(|(vm, entry)| {
            let cluster = entry.keys.tenant.cluster();
            before.of(vm, cluster) != after.of(vm, cluster)
        });
        let affected: Vec<VmKey> = affected.map(|(vm, _)| vm.clone()).collect();
        for vm in &affected {
            self.refresh_health(vm);
        }
    }

    /// Updates the health of all VMs of the clusters whose state may have changed.
    pub(super) fn touch_clusters(&mut self, is_affected: impl Fn(&ClusterName) -> bool) {
        let vms = self.store.vms.iter();
        let affected = vms.filter(|(_, entry)| entry.keys.tenant.cluster().is_some_and(&is_affected));
        let affected: Vec<VmKey> = affected.map(|(key, _)| key.clone()).collect();
        for vm in &affected {
            self.refresh_health(vm);
        }
    }

    /// Updates what is stale after a change of the inventory's findings.
    pub(super) fn update_stale(&mut self) {
        let stale = StaleInventory::of(&self.inventory);
        if self.stale == stale {
            return;
        }
        let before = std::mem::replace(&mut self.stale, stale);
        if before.is_fleet() && !self.stale.is_fleet() {
            self.store.heartbeats.reached(None, self.now_ms);
        }
        let is_moving = |entry: &VmEntry| {
            let migration = entry.vmi.as_deref().and_then(|vmi| vmi.migration.as_ref());
            migration.is_some_and(Migration::in_progress)
        };
        // Whether a migration has ended depends on whether its objects are followed.
        let moving = self.store.vms.iter().filter(|(vm, entry)| {
            is_moving(entry) && before.follows_moves(vm) != self.stale.follows_moves(vm)
        });
        let views: BTreeSet<VmKey> = moving.map(|(vm, _)| vm.clone()).collect();
        let others = self.store.vms.keys().filter(|vm| !views.contains(*vm));
        let affected = others.filter(|vm| before.affects(vm) != self.stale.affects(vm));
        let affected: Vec<VmKey> = affected.cloned().collect();
        self.update_affected(Touched {
            views,
            ..Touched::default()
        });
        for vm in &affected {
            self.refresh_health(vm);
        }
    }
}
