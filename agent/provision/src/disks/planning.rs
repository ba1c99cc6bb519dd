//! The plan for the declared disks.

use std::thread;

use virtfleet_agent_core::disks::{journal::Journal, plan};
use virtfleet_agent_host::JournalStore;
use virtfleet_wire::settings::DiskSettings;

use super::{
    found,
    observe::{self, Known},
    observed::{Observed, PlanDisksError},
    probes::{ProbeQueue, ProbeWait},
    provisioner::DiskProvisioner,
    unlock,
};
use crate::engine::error_chain;

impl DiskProvisioner<'_> {
    /// Probes everything, however long that takes, and makes the plan. Writes nothing but where
    /// data was found ([`found`]).
    ///
    /// # Errors
    /// The disks or the mounts cannot be observed.
    pub fn plan(&self, declared: &[DiskSettings]) -> Result<Observed, PlanDisksError> {
        let store = JournalStore::existing(self.roots).map_err(error_chain);
        let mut observed = thread::scope(|scope| {
            let probe_queue = &mut ProbeQueue::new(scope, self.disks());
            self.plan_with(declared, store, &Known::default(), probe_queue, ProbeWait::All)
        })?;
        found::remember_of_plan(self, declared, &observed);
        unlock::refuse_shut(self, &mut observed);
        Ok(observed)
    }

    pub(super) fn plan_with(
        &self,
        declared: &[DiskSettings],
        store: Result<Option<JournalStore>, String>,
        known: &Known,
        probe_queue: &mut ProbeQueue<'_, '_>,
        wait: ProbeWait,
    ) -> Result<Observed, PlanDisksError> {
        let (wanted, problems) = self.checked(declared);
        let store = store.and_then(|store| self.off_disks(store, declared));
        let mut journal = Journal::default();
        let loaded = store.as_ref().map_err(Clone::clone).and_then(|store| {
            store
                .as_ref()
                .map(JournalStore::load)
                .transpose()
                .map_err(error_chain)
        });
        match loaded {
            Ok(loaded) => journal = loaded.unwrap_or_default(),
            // It has no name because it applies to all of them.
            Err(reason) => journal.broken.push((String::new(), reason)),
        }
        let seen = observe::observe(self, &wanted, &journal, known, probe_queue, wait)?;
        let plan = plan::plan(&wanted, &problems, &seen, &journal);
        Ok(Observed {
            wanted,
            problems,
            seen,
            journal,
            plan,
            store,
        })
    }
}
