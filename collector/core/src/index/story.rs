//! Stories of the VMs: feeds what changes into them, and watches for storms of migrations.

use std::{collections::BTreeSet, net::IpAddr};

use virtfleet_wire::{finding::Finding, ids::VmKey};

use super::{FleetIndex, touched::Touched};
use crate::{
    abandoned::KnownMoves,
    facts::{Labels, Migration, VmiMove},
    findings::keep_since,
    pull_result::PullResult,
    store::{Store, VmEntry},
    story::{ReportChange, StoryView, TimelineEntry, TimelineKind},
    view::{VmState, VmView},
};

/// The migration objects of a VM.
fn moves<'a>(store: &'a Store, vm: &'a VmKey) -> impl Iterator<Item = &'a VmiMove> {
    let names = store.moves_by_vm.get(vm).into_iter().flatten();
    names.filter_map(|name| store.moves.get(&(vm.namespace.clone(), name.clone())))
}

#[derive(Debug, Default)]
pub(super) struct BeforeChange {
    view: Option<std::sync::Arc<VmView>>,
    findings: Vec<Finding>,
}

impl BeforeChange {
    pub(super) fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

impl FleetIndex {
    /// Timeline and migrations of one VM; none for an unknown VM.
    pub fn story(&self, key: &VmKey) -> Option<StoryView> {
        let entry = self.store.vms.get(key)?;
        Some(entry.story.view(moves(&self.store, key)))
    }

    /// Number of the migrations of a VM that have failed one after the other.
    #[cfg(test)]
    pub(crate) fn failed_migrations(&self, key: &VmKey) -> usize {
        self.store
            .vms
            .get(key)
            .map_or(0, |entry| entry.story.failures().count)
    }

    /// The labels by which a VM is selected.
    pub fn vm_labels(&self, key: &VmKey) -> Labels {
        let entry = self.store.vms.get(key);
        entry
            .map(|entry| crate::derive::labels(entry))
            .unwrap_or_default()
    }

    /// The time since which the stories are complete: the first complete read of the inventory.
    pub fn synced_ms(&self) -> Option<u64> {
        self.synced_ms
    }

    /// Takes whether KubeVirt has forgotten the migration of a VM, before its view is made.
    pub(super) fn observe_dead_migration(&mut self, vm: &VmKey) {
        let Some(entry) = self.store.vms.get(vm) else {
            return;
        };
        let moves = match self.statuses {
            _ if !self.synced => KnownMoves::NotYet,
            Some(_) if self.stale.follows_moves(vm) => KnownMoves::All(moves(&self.store, vm)),
            _ => KnownMoves::NotFollowed,
        };
        let dead = entry
            .dead_migration
            .then(entry.vmi.as_deref(), moves, self.now_ms);
        if let Some(entry) = self.store.vms.get_mut(vm) {
            entry.dead_migration = dead;
        }
    }

    /// Takes the migrations and addresses of a VM, before its view is made.
    pub(super) fn observe_migrations(&mut self, vm: &VmKey) {
        let Some(mut story) = self
            .store
            .vms
            .get_mut(vm)
            .map(|entry| std::mem::take(&mut entry.story))
        else {
            return;
        };
        if let Some(entry) = self.store.vms.get(vm)
            && let Some(vmi) = entry.vmi.as_deref()
        {
            let migration = entry.migration();
            let migration = migration.as_deref();
            let begun = migration.and_then(|state| story.observe_migration(vm, state, self.now_ms));
            if let Some(start) = begun {
                self.storms.record(start, self.now_ms);
            }
            let is_migrating = migration.is_some_and(Migration::in_progress);
            if vmi.phase == crate::facts::Phase::Running && !vmi.deleting {
                let addresses = self.store.addresses_of(vmi);
                story.observe_addresses(addresses, is_migrating, self.now_ms);
            }
        }
        story.count_migrations(vm, moves(&self.store, vm), self.now_ms);
        if let Some(entry) = self.store.vms.get_mut(vm) {
            entry.story = story;
        }
    }

    /// The state of a VM before its view is replaced.
    pub(super) fn before(entry: &mut VmEntry) -> BeforeChange {
        BeforeChange {
            view: entry.view.clone(),
            findings: std::mem::take(&mut entry.findings),
        }
    }

    /// Records what changed with the new view of a VM. While the inventory is read for the first
    /// time, each object is a change, and none of them is news.
    pub(super) fn record_changes(&mut self, vm: &VmKey, before: &BeforeChange) {
        let (is_news, now_ms) = (self.holds, self.now_ms);
        let Some(entry) = self.store.vms.get_mut(vm).filter(|_| is_news) else {
            return;
        };
        let Some(view) = entry.view.clone() else { return };
        let story = &mut entry.story;
        if let Some(old) = &before.view {
            // What the first answer shows was there before.
            if old.agent.last_seen_ms.is_some() || view.agent.last_seen_ms.is_none() {
                story.observe_findings(&before.findings, &entry.findings, now_ms);
            }
            if let Some(text) = state_change(old, &view) {
                story.add(TimelineEntry::new(now_ms, TimelineKind::State, text));
            }
            if let Some(host) = view
                .infra_node
                .as_ref()
                .filter(|_| old.infra_node != view.infra_node)
            {
                story.observe_host(old.infra_node.as_ref(), host, now_ms);
            }
        }
        story.observe_health(&view.health, now_ms);
    }

    /// Records what a pull says of the guest; called before the answer is stored.
    pub(super) fn observe_report(entry: &mut VmEntry, pull: &PullResult) {
        let Ok(answer) = &pull.outcome else { return };
        let before = entry.pulls.answer.as_ref();
        entry.story.observe_report(ReportChange {
            at_ms: pull.at,
            boot_id: &answer.report.boot_id,
            clock: &answer.report.clock,
            findings_before: before.map(|(_, before)| &*before.report.findings),
            findings: &answer.report.findings,
        });
    }

    /// Updates what the time alone changes: the findings about migrations, and those that KubeVirt
    /// has forgotten.
    pub(super) fn settle_stories(&mut self) {
        let is_due = |entry: &VmEntry| {
            let dues = [entry.story.due_ms(), entry.dead_migration.due_ms()];
            dues.into_iter().flatten().any(|due| due <= self.now_ms)
        };
        let due = self.store.vms.iter().filter(|(_, entry)| is_due(entry));
        let views: BTreeSet<VmKey> = due.map(|(key, _)| key.clone()).collect();
        self.revision += u64::from(!views.is_empty());
        self.update_affected(Touched {
            views,
            ..Touched::default()
        });
        let nodes = &self.store.infra_nodes;
        let is_cordoned = |host: &_| nodes.get(host).is_some_and(|node| node.unschedulable);
        let mut found = self.storms.findings(self.now_ms, is_cordoned);
        keep_since(&self.storm_findings, &mut found, &self.now);
        if self.storm_findings != found {
            self.storm_findings = found;
            self.revision += 1;
        }
    }
}

/// What changed about the state of a VM. Migrations have entries of their own.
fn state_change(old: &VmView, new: &VmView) -> Option<String> {
    let plain = |state: VmState| match state {
        VmState::Migrating => VmState::Running,
        other => other,
    };
    if old.uid.is_some() && new.uid.is_some() && old.uid != new.uid {
        return Some(format!(
            "the VM was started anew, as another VMI; it is {}",
            plain(new.state).as_str()
        ));
    }
    let (was, is) = (plain(old.state), plain(new.state));
    (was != is).then(|| format!("the VM is {}, was {}", is.as_str(), was.as_str()))
}

impl Store {
    /// The addresses of a VMI: those of its interfaces, else those of its pod.
    fn addresses_of(&self, vmi: &crate::facts::Vmi) -> Vec<IpAddr> {
        let own: Vec<IpAddr> = vmi
            .interfaces
            .iter()
            .flat_map(|one| one.addresses.iter().copied())
            .collect();
        if own.is_empty() {
            let pod = self.launcher(vmi);
            pod.map(|pod| pod.addresses.clone()).unwrap_or_default()
        } else {
            own
        }
    }
}
