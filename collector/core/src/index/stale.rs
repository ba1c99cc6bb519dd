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
    fleet: bool,
    namespaces: BTreeSet<Namespace>,
}

impl StaleInventory {
    /// What these findings of the inventory's reader say.
    pub(super) fn of(inventory: &[Finding]) -> Self {
        let mut stale = Self::default();
        let fails = |finding: &&Finding| {
            finding.id == findings::INVENTORY_WATCH_FAILING
                || finding.id == findings::INVENTORY_FOLDER_UNREADABLE
                    && finding.severity == Severity::Critical
        };
        for finding in inventory.iter().filter(fails) {
            match findings::gap(finding) {
                Some(Gap::Fleet) => stale.fleet = true,
                Some(Gap::Namespace(name)) => drop(stale.namespaces.insert(name)),
                Some(Gap::Cluster(_)) | None => {}
            }
        }
        stale
    }

    /// Whether any fact may be outdated.
    pub(super) fn is_any(&self) -> bool {
        self.fleet || !self.namespaces.is_empty()
    }

    /// Whether facts about a VM may be outdated.
    pub(super) fn affects(&self, vm: &VmKey) -> bool {
        self.fleet || self.namespaces.contains(&vm.namespace)
    }
}
