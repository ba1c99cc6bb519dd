//! What placement depends on, copied from the index.

use std::sync::Arc;

use virtfleet_wire::ids::{NodeName, VmKey};

use crate::{
    facts::{InfraNode, Labels, Migration},
    scheduling::{ResourceAmounts, Scheduling},
    view::{VmState, VmView},
};

/// Infra nodes and VMs.
#[derive(Debug, Clone, Default)]
pub struct PlacementFleet {
    /// The infra nodes of the inventory, by name.
    pub hosts: Vec<InfraNode>,
    /// The VMs that have a VMI, by namespace and name.
    pub vms: Vec<PlacedVm>,
    /// VMs may be missing.
    pub partial: bool,
}

#[derive(Debug, Clone)]
pub struct PlacedVm {
    pub view: Arc<VmView>,
    /// The VMI's labels, which its virt-launcher pod has, too.
    pub labels: Labels,
    /// Where it may run.
    pub scheduling: Arc<Scheduling>,
    /// What its virt-launcher pod requests.
    pub requests: ResourceAmounts,
    /// The requests are those of the VMI, because its pod is not known.
    pub is_estimated: bool,
    /// KubeVirt's condition `LiveMigratable`; none if it is not reported.
    pub live_migratable: Option<bool>,
    /// Why it is not.
    pub not_migratable: Option<String>,
    /// Its last migration.
    pub migration: Option<Migration>,
    /// Its eviction from its infra node was requested (`status.evacuationNodeName`).
    pub eviction_requested: bool,
}

impl PlacedVm {
    pub fn key(&self) -> VmKey {
        VmKey {
            namespace: self.view.namespace.clone(),
            name: self.view.name.clone(),
        }
    }

    /// The infra node on which it uses resources.
    pub fn host(&self) -> Option<&NodeName> {
        let has_ended = matches!(
            self.view.state,
            VmState::Succeeded | VmState::Failed | VmState::Stopped
        );
        self.view.infra_node.as_ref().filter(|_| !has_ended)
    }

    /// The infra node to which it is migrating now.
    pub fn migrating_to(&self) -> Option<&NodeName> {
        let running = self.migration.as_ref().filter(|one| one.in_progress())?;
        running.target.as_ref()
    }

    /// Its number of vCPUs: of the VMI, else as its guest says.
    pub fn vcpus(&self) -> u64 {
        let of_guest = || self.view.guest.as_ref().map_or(0, |guest| guest.metrics.cpus);
        self.scheduling.vcpus.map_or_else(of_guest, u64::from)
    }
}

impl PlacementFleet {
    /// The place of an infra node in `hosts`.
    pub(super) fn host_index(&self, name: &NodeName) -> Option<usize> {
        self.hosts.binary_search_by(|host| host.name.cmp(name)).ok()
    }
}
