//! Parts of the inventory whose facts may be outdated, because a watch fails.

use std::collections::BTreeSet;

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{Namespace, VmKey},
};

use crate::findings::{self, Gap};

/// Parts of the inventory that do not follow the infra cluster at present.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StaleInventory {
    facts: StaleScope,
    /// The same of migration objects. One that cannot be read may be that of any VM of its
    /// namespace. Of the kinds without which the collector works, `Namespace` says nothing about
    /// migrations.
    moves: StaleScope,
}

/// The VMs about which objects may be outdated.
#[derive(Debug, Default, PartialEq, Eq)]
struct StaleScope {
    fleet: bool,
    namespaces: BTreeSet<Namespace>,
}

impl StaleScope {
    fn of<'a>(failures: impl Iterator<Item = &'a Finding>) -> Self {
        let mut stale = Self::default();
        for failure in failures {
            match findings::scope(failure) {
                Gap::Fleet => stale.fleet = true,
                Gap::Namespace(name) => drop(stale.namespaces.insert(name)),
                Gap::Cluster(_) => {}
            }
        }
        stale
    }

    fn has(&self, vm: &VmKey) -> bool {
        self.fleet || self.namespaces.contains(&vm.namespace)
    }
}

impl StaleInventory {
    /// What these findings of the inventory's reader say.
    pub(super) fn of(inventory: &[Finding]) -> Self {
        let fails = |finding: &&Finding| {
            finding.id == findings::INVENTORY_WATCH_FAILING
                || finding.id == findings::INVENTORY_FOLDER_UNREADABLE
                    && finding.severity == Severity::Critical
        };
        let is_without = |finding: &&Finding| {
            let is_namespaces = finding
                .evidence
                .get("kind")
                .is_some_and(|kind| kind == "Namespace");
            finding.id == findings::INVENTORY_KIND_ABSENT && !is_namespaces
                || finding.id == findings::INVENTORY_OBJECT_UNREADABLE
                    && finding.subject.kind == "VirtualMachineInstanceMigration"
        };
        Self {
            facts: StaleScope::of(inventory.iter().filter(fails)),
            moves: StaleScope::of(inventory.iter().filter(is_without)),
        }
    }

    /// Whether any fact may be outdated.
    pub(super) fn is_any(&self) -> bool {
        self.facts.fleet || !self.facts.namespaces.is_empty()
    }

    /// Whether facts about any VM may be outdated, also those of infra nodes.
    pub(super) fn is_fleet(&self) -> bool {
        self.facts.fleet
    }

    /// Whether facts about a VM may be outdated.
    pub(super) fn affects(&self, vm: &VmKey) -> bool {
        self.facts.has(vm)
    }

    /// Whether the VMI of a VM and its migration objects are followed.
    pub(super) fn follows_moves(&self, vm: &VmKey) -> bool {
        !self.facts.has(vm) && !self.moves.has(vm)
    }
}
