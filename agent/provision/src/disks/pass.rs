//! What works on the declared disks of a machine, and the plan that it makes.

use std::thread;

use virtfleet_agent_core::disks::{
    Plan, Seen, Wanted, binds,
    journal::Journal,
    plan,
    state::DisksState,
    units,
    wanted::{self, WantedProblem},
};
use virtfleet_agent_host::{
    Commands, JournalStore, MountsError, Roots, Witness,
    disks::{DevicesError, Disks, Kinds},
};
use virtfleet_agent_state::WriteStateError;
use virtfleet_wire::settings::DiskSettings;

use super::{
    found,
    looks::{Looks, Wait},
    observe::{self, Known},
    unlock,
};

/// What works on the disks of one machine.
#[derive(Clone, Copy)]
pub struct Engine<'a> {
    /// The guest's trees.
    pub roots: &'a Roots,
    /// What runs the tools.
    pub commands: &'a dyn Commands,
    /// Which devices count as disks.
    pub kinds: Kinds,
    /// Who is told of each effect.
    pub witness: &'a dyn Witness,
    /// The VM's SMBIOS UUID; empty when there is none.
    pub vm_uuid: &'a str,
    /// The boot.
    pub boot_id: &'a str,
    /// Whether systemd runs the guest.
    pub systemd: bool,
    /// Why it is not known which disks are declared, as [`super::unusable`] says.
    pub unusable: Option<&'a str>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The disks.
    #[error(transparent)]
    Devices(#[from] DevicesError),
    /// The mounts.
    #[error(transparent)]
    Mounts(#[from] MountsError),
    /// The state was not written.
    #[error("what was done to the disks cannot be recorded")]
    State(#[from] WriteStateError),
}

/// All that a plan is made from.
#[derive(Debug)]
pub struct Observed {
    /// The declared disks whose settings make sense.
    pub wanted: Vec<Wanted>,
    /// What is wrong with the others.
    pub problems: Vec<WantedProblem>,
    /// What is there.
    pub seen: Seen,
    /// What was begun and finished.
    pub journal: Journal,
    /// The plan that follows.
    pub plan: Plan,
    pub(super) store: Result<Option<JournalStore>, String>,
}

/// What a pass did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Passed {
    /// How the disks stand now.
    pub state: DisksState,
    /// Whether anything was changed.
    pub changed: bool,
}

impl<'a> Engine<'a> {
    pub(super) fn disks(&self) -> Disks<'a> {
        Disks {
            roots: self.roots,
            commands: self.commands,
            kinds: self.kinds,
        }
    }

    /// Probes everything, however long that takes, and makes the plan. Nothing is written but where data was found ([`found`]).
    pub fn plan(&self, declared: &[DiskSettings]) -> Result<Observed, EngineError> {
        let store = JournalStore::existing(self.roots).map_err(chain);
        let mut observed = thread::scope(|scope| {
            let looks = &mut Looks::new(scope, self.disks());
            self.plan_with(declared, store, &Known::default(), looks, Wait::Full)
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
        looks: &mut Looks<'_, '_>,
        wait: Wait,
    ) -> Result<Observed, EngineError> {
        let (wanted, problems) = self.checked(declared);
        let store = store.and_then(|store| self.off_disks(store, declared));
        let mut journal = Journal::default();
        let loaded = store
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|store| store.as_ref().map(JournalStore::load).transpose().map_err(chain));
        match loaded {
            Ok(loaded) => journal = loaded.unwrap_or_default(),
            // No name: it is about all of them.
            Err(reason) => journal.broken.push((String::new(), reason)),
        }
        let seen = observe::observe(self, &wanted, &journal, known, looks, wait)?;
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

    /// The declared disks whose settings make sense, and what is wrong with the others.
    pub(super) fn checked(&self, declared: &[DiskSettings]) -> (Vec<Wanted>, Vec<WantedProblem>) {
        let (wanted, mut problems) = wanted::check(declared);
        // Nobody knows whether one of them is required, so that is what is held.
        problems.extend(self.unusable.map(|reason| WantedProblem {
            disk: String::new(),
            required: true,
            path: "disks".to_owned(),
            message: reason.to_owned(),
        }));
        (wanted, problems)
    }

    /// The journal, when it does not lie on a disk that it is about: declared now, or before.
    pub(super) fn off_disks(
        &self,
        store: Option<JournalStore>,
        declared: &[DiskSettings],
    ) -> Result<Option<JournalStore>, String> {
        let files = virtfleet_agent_host::disk_files(self.roots, self.systemd);
        let before = files.values().flat_map(|text| units::places_of(text));
        let now: Vec<String> = declared.iter().flat_map(binds::mount_points).collect();
        let places: Vec<&str> = now.iter().map(String::as_str).chain(before).collect();
        store.map(|store| store.off(&places)).transpose().map_err(chain)
    }

    /// Whether there is nothing to do at all: nothing is declared, and nothing of ours is left of what was.
    pub fn is_idle(&self, declared: &[DiskSettings]) -> bool {
        declared.is_empty()
            && self.unusable.is_none()
            && virtfleet_agent_host::disk_files(self.roots, self.systemd)
                .values()
                .all(|text| {
                    units::disk_of(text).is_none()
                        && !units::is_gates(text)
                        && !text.contains("# virtfleet disk ")
                })
    }
}

/// An error with all that it came from, in one line.
pub(in super::super) fn chain(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}
