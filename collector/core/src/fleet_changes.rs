//! Differences between two snapshots of a fleet, for clients that show it live.

use std::{collections::BTreeMap, sync::Arc};

use virtfleet_wire::ids::VmKey;

use crate::{
    pull_result::MetricsSummary,
    view::{AgentView, FleetSnapshot, GuestView, VmView},
};

/// Changes from one snapshot to a later one.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "parts of a fleet that change independently, not states"
)]
pub struct FleetChanges {
    /// VMs that are new, or differ in more than the times of their pulls and their load.
    pub vms: Vec<Arc<VmView>>,
    /// VMs that are gone.
    pub removed: Vec<VmKey>,
    /// Whether the infra nodes differ.
    pub hosts: bool,
    /// Whether the user clusters differ.
    pub clusters: bool,
    /// Whether the findings differ.
    pub findings: bool,
    /// Whether the inventory's completeness differs.
    pub completeness: bool,
}

impl FleetChanges {
    pub fn between(before: &FleetSnapshot, after: &FleetSnapshot) -> Self {
        let mut changes = Self {
            hosts: before.hosts != after.hosts,
            clusters: before.clusters != after.clusters,
            findings: before.findings != after.findings,
            completeness: (before.partial, before.synced, &before.gaps)
                != (after.partial, after.synced, &after.gaps),
            ..Self::default()
        };
        changes.compare_vms(&before.vms, &after.vms);
        changes
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Walks both maps in order at once: a lookup per VM costs several times as much.
    fn compare_vms(&mut self, before: &BTreeMap<VmKey, Arc<VmView>>, after: &BTreeMap<VmKey, Arc<VmView>>) {
        let mut old = before.iter().peekable();
        for (key, vm) in after {
            while let Some((gone, view)) = old.next_if(|(known, _)| *known < key) {
                self.remove(gone, view);
            }
            match old.next_if(|(known, _)| *known == key) {
                Some((_, known)) if looks_same(known, vm) => {}
                known => {
                    let key_of_known = known.map(|(_, known)| known.findings_key);
                    self.findings |= match key_of_known {
                        Some(known) => known != vm.findings_key,
                        None => vm.findings > 0,
                    };
                    self.vms.push(Arc::clone(vm));
                }
            }
        }
        for (gone, view) in old {
            self.remove(gone, view);
        }
    }

    fn remove(&mut self, key: &VmKey, view: &VmView) {
        self.findings |= view.findings > 0;
        self.removed.push(key.clone());
    }
}

/// Whether two views of a VM differ in nothing but the times of the agent's pulls and the load of
/// the guest, which change with every pull.
fn looks_same(one: &Arc<VmView>, other: &Arc<VmView>) -> bool {
    Arc::ptr_eq(one, other) || without_pulls(one) == without_pulls(other)
}

fn without_pulls(vm: &VmView) -> VmView {
    VmView {
        agent: AgentView {
            verified_ms: None,
            last_seen_ms: None,
            last_try_ms: None,
            took_ms: None,
            ..vm.agent.clone()
        },
        guest: vm.guest.clone().map(|guest| GuestView {
            metrics: MetricsSummary::default(),
            ..guest
        }),
        ..vm.clone()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        health::HealthView,
        view::{AgentStatus, SeverityCounts, VmState},
    };

    use super::*;

    fn vm(name: &str) -> VmView {
        VmView {
            namespace: "team".parse().unwrap(),
            name: name.parse().unwrap(),
            uid: None,
            cluster: None,
            user_node: None,
            infra_node: None,
            region: None,
            zone: None,
            state: VmState::Running,
            agent: AgentView {
                status: AgentStatus::Up,
                address: None,
                way: None,
                verified_ms: None,
                version: None,
                last_seen_ms: Some(1),
                last_try_ms: Some(1),
                took_ms: Some(3),
                failure: None,
            },
            guest: None,
            health: HealthView::default(),
            findings: 0,
            severities: SeverityCounts::default(),
            findings_key: 0,
            cluster_label: None,
        }
    }

    fn fleet(vms: impl IntoIterator<Item = VmView>) -> FleetSnapshot {
        let entry = |vm: VmView| {
            let key = VmKey {
                namespace: vm.namespace.clone(),
                name: vm.name.clone(),
            };
            (key, Arc::new(vm))
        };
        FleetSnapshot {
            vms: vms.into_iter().map(entry).collect(),
            ..FleetSnapshot::default()
        }
    }

    fn names(changes: &FleetChanges) -> (Vec<&str>, Vec<&str>) {
        let shown = changes.vms.iter().map(|vm| vm.name.as_str());
        let removed = changes.removed.iter().map(|key| key.name.as_str());
        (shown.collect(), removed.collect())
    }

    #[test]
    fn new_changed_and_removed_vms_are_found() {
        let before = fleet([vm("a"), vm("b"), vm("c"), vm("z")]);
        let mut moved = vm("b");
        moved.infra_node = Some("host-2".parse().unwrap());
        let after = fleet([vm("aa"), moved, vm("c")]);
        let changes = FleetChanges::between(&before, &after);
        assert_eq!(names(&changes), (vec!["aa", "b"], vec!["a", "z"]));
        assert!(!changes.findings && !changes.hosts && !changes.is_empty());
        assert_eq!(
            names(&FleetChanges::between(&FleetSnapshot::default(), &before)).0,
            ["a", "b", "c", "z"]
        );
    }

    #[test]
    fn a_pull_that_shows_nothing_new_is_no_change() {
        let mut pulled = vm("a");
        pulled.agent.last_seen_ms = Some(31_000);
        pulled.agent.last_try_ms = Some(31_000);
        pulled.agent.took_ms = Some(9);
        assert!(FleetChanges::between(&fleet([vm("a")]), &fleet([pulled.clone()])).is_empty());
        pulled.agent.status = AgentStatus::Silent;
        assert!(!FleetChanges::between(&fleet([vm("a")]), &fleet([pulled])).is_empty());
    }

    #[test]
    fn findings_of_a_vm_change_the_findings() {
        let mut found = vm("a");
        (found.findings, found.findings_key) = (1, 7);
        for (before, after) in [
            (fleet([vm("a")]), fleet([found.clone()])),
            (fleet([found.clone()]), fleet([])),
            (fleet([]), fleet([found])),
        ] {
            assert!(FleetChanges::between(&before, &after).findings);
        }
    }
}
