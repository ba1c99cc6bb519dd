//! Copies what placement depends on.

use std::{borrow::Cow, sync::Arc};

use super::FleetIndex;
use crate::{
    placement::{PlacedVm, PlacementFleet},
    reported::ReportedStatus,
    store::VmEntry,
};

impl FleetIndex {
    /// Infra nodes and VMs, to check their placement without holding the index.
    pub fn placement_fleet(&self) -> PlacementFleet {
        PlacementFleet {
            hosts: self.store.infra_nodes.values().cloned().collect(),
            vms: self
                .store
                .vms
                .values()
                .filter_map(|entry| self.placed(entry))
                .collect(),
            partial: !self.synced || self.stale.is_any(),
        }
    }

    fn placed(&self, entry: &VmEntry) -> Option<PlacedVm> {
        let (vmi, view) = (entry.vmi.as_deref()?, entry.view.as_ref()?);
        let pod = self.store.launcher(vmi).and_then(|pod| pod.requests);
        let migratable = vmi.conditions.get("LiveMigratable");
        let is_migratable = migratable.and_then(|one| match one.status {
            ReportedStatus::True => Some(true),
            ReportedStatus::False => Some(false),
            ReportedStatus::Unknown => None,
        });
        Some(PlacedVm {
            view: Arc::clone(view),
            labels: vmi.labels.clone(),
            scheduling: Arc::clone(&vmi.scheduling),
            requests: pod.unwrap_or(vmi.scheduling.requests),
            is_estimated: pod.is_none(),
            live_migratable: is_migratable,
            not_migratable: migratable
                .filter(|_| is_migratable == Some(false))
                .map(|one| one.text().to_owned()),
            migration: entry.migration().map(Cow::into_owned),
            eviction_requested: vmi.leaves().is_some(),
        })
    }
}
