//! One run over the disks, in one round or two.
//!
//! The first round waits a short time for each disk. A disk that has not answered by then counts as
//! unreadable: the run leaves it alone and applies the plan of the others. The second round waits
//! for the late disks, plans again, and applies the plan of these disks and of those that are
//! mounted below them.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem, thread,
};

use virtfleet_agent_core::{
    disks::{
        Plan,
        journal::{Entry, Progress},
        state::DisksState,
    },
    pass::Stage,
};
use virtfleet_agent_host::{JournalStore, Roots, sweep_temporary_files};
use virtfleet_agent_state::{DISKS_STATE, StateFile, WriteStateError};
use virtfleet_wire::settings::DiskSettings;

use super::{
    act::{self, DiskOutcome},
    files, found, gate, known,
    observe::Known,
    observed::{Observed, PlanDisksError},
    probes::{ProbeQueue, ProbeWait},
    provisioner::DiskProvisioner,
    record, seed,
    session::Session,
    unlock, unread,
};
use crate::engine::{self, Domain, Mode, RunError, RunResult, error_chain};

impl DiskProvisioner<'_> {
    /// Observes the disks, plans, applies the plan, and records the result. `None`: the plan is not
    /// the expected one, and nothing was changed.
    ///
    /// # Errors
    /// The disks or the mounts cannot be observed, or the state cannot be recorded.
    pub fn run(
        &self,
        declared: &[DiskSettings],
        mode: Mode<'_, Plan>,
    ) -> Result<Option<RunResult<Plan, DisksState>>, RunError<PlanDisksError>> {
        thread::scope(|scope| {
            let mut run = DiskRun {
                provisioner: self,
                declared,
                mode,
                previous: DisksState::default(),
                known: Known::default(),
                probe_queue: ProbeQueue::new(scope, self.disks()),
                gate_files: gate::GateFiles::default(),
                gate_written: false,
                store: Ok(None),
                outcomes: BTreeMap::new(),
                changed: false,
            };
            engine::run(&mut run, mode)
        })
    }
}

struct DiskRun<'p, 's, 'e> {
    provisioner: &'p DiskProvisioner<'e>,
    declared: &'p [DiskSettings],
    mode: Mode<'p, Plan>,
    /// What the last run of this boot recorded.
    previous: DisksState,
    known: Known,
    probe_queue: ProbeQueue<'s, 'e>,
    /// What was written of the gate before there was a plan; taken over by the session.
    gate_files: gate::GateFiles,
    gate_written: bool,
    /// The journal, until the first plan takes it over.
    store: Result<Option<JournalStore>, String>,
    outcomes: BTreeMap<String, DiskOutcome>,
    changed: bool,
}

impl<'p> Domain for DiskRun<'p, '_, '_> {
    type Plan = Plan;
    type Observed = Session<'p>;
    type State = DisksState;
    type Error = PlanDisksError;

    const STATE: &'static StateFile<DisksState> = &DISKS_STATE;

    fn roots(&self) -> &Roots {
        self.provisioner.roots
    }

    /// Writes the gate before anything can fail. With an expected plan the gate is part of that
    /// plan.
    fn recover(&mut self) -> Result<(), WriteStateError> {
        let provisioner = self.provisioner;
        if self.mode.expected.is_none() {
            self.gate_files = gate::write(provisioner, self.declared);
            self.gate_written = self.gate_files.written;
            if self.gate_written && self.mode.stage != Stage::Reconcile {
                gate::queue_first(provisioner, &mut self.gate_files);
            }
        }
        self.previous = DISKS_STATE
            .read(provisioner.roots, provisioner.boot_id)
            .unwrap_or_default();
        self.known = Known::of(&self.previous);
        // Opened before this run mounts anything, so that no mount of ours lies above it.
        self.store = JournalStore::open(provisioner.roots)
            .map(Some)
            .map_err(error_chain);
        end_orphans(provisioner, &self.store);
        for path in sweep_temporary_files(provisioner.roots) {
            tracing::info!(path, "removed a temporary file that a killed run left");
        }
        seed::clean(provisioner);
        Ok(())
    }

    fn observe(&mut self) -> Result<Session<'p>, PlanDisksError> {
        let by_plan = self.mode.expected.is_some();
        let wait = if by_plan { ProbeWait::All } else { ProbeWait::Fast };
        let store = mem::replace(&mut self.store, Ok(None));
        let mut observed = self.plan_with(store, &self.known.clone(), wait)?;
        if by_plan {
            unlock::refuse_shut(self.provisioner, &mut observed);
        }
        Ok(Session::new(self.provisioner, observed))
    }

    fn plan<'o>(session: &'o Session<'p>) -> &'o Plan {
        &session.observed.plan
    }

    fn agrees(expected: &Plan, plan: &Plan) -> bool {
        expected.agrees_with(plan)
    }

    fn apply(&mut self, mut session: Session<'p>) -> Result<Session<'p>, RunError<PlanDisksError>> {
        found::remember(&session.observed);
        known::remember(&mut session.observed);
        mem::take(&mut self.gate_files).hand_over(&mut session);
        let plan = session.observed.plan.clone();
        self.gate_written |= files::common(&mut session, &plan);
        self.outcomes = act::disks(&mut session, &plan);
        let late = self.probe_queue.under_way();
        if !late.is_empty() {
            // Recorded before the late disks are waited for: the gate reads how the others are.
            self.observe_again(&mut session, ProbeWait::Fast)?;
            let state = self.state(&mut session);
            DISKS_STATE.write(self.provisioner.roots, &state)?;
            for (name, again) in self.second_round(&mut session, &late)? {
                let outcome = self.outcomes.entry(name).or_default();
                outcome.done.extend(again.done);
                outcome.error = again.error.or(outcome.error.take());
            }
        }
        session.reload();
        self.changed = session.changed;
        self.observe_again(&mut session, ProbeWait::All)?;
        known::remember(&mut session.observed);
        Ok(session)
    }

    fn state(&mut self, session: &mut Session<'p>) -> DisksState {
        let observed = &mut session.observed;
        record::refuse_locked(&mut observed.plan, &mut self.outcomes, &session.shut);
        record::state(
            self.provisioner,
            &record::After {
                declared: self.declared,
                wanted: &observed.wanted,
                problems: &observed.problems,
                seen: &observed.seen,
                plan: &observed.plan,
                journal: &observed.journal,
                outcomes: &self.outcomes,
                failures: &session.failures,
                recovered: &session.recovered,
                previous: &self.previous,
            },
        )
    }

    /// Nothing is known of the disks, so the gate must stay closed.
    fn state_after_error(&mut self, error: &RunError<PlanDisksError>) -> Option<DisksState> {
        let provisioner = self.provisioner;
        self.gate_written |= gate::write(provisioner, self.declared).written;
        let mut reason = error_chain(error);
        if self.gate_written
            && let Err(error) = unread::reload(provisioner)
        {
            reason = format!("{reason}; {}", error_chain(error));
        }
        Some(record::failed(provisioner, &self.previous, &reason))
    }

    fn recorded(&mut self, state: &DisksState) {
        let reconciles = self.mode.stage == Stage::Reconcile;
        gate::open(
            self.provisioner,
            state,
            reconciles && !self.gate_written,
            reconciles,
        );
    }

    fn into_plan(session: Session<'p>) -> Plan {
        session.observed.plan
    }

    fn changed(&self) -> bool {
        self.changed
    }
}

impl DiskRun<'_, '_, '_> {
    fn plan_with(
        &mut self,
        store: Result<Option<JournalStore>, String>,
        known: &Known,
        wait: ProbeWait,
    ) -> Result<Observed, PlanDisksError> {
        self.provisioner
            .plan_with(self.declared, store, known, &mut self.probe_queue, wait)
    }

    /// The second round: for the disks that were late, and for those that are mounted below them.
    fn second_round(
        &mut self,
        session: &mut Session<'_>,
        late: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, DiskOutcome>, RunError<PlanDisksError>> {
        let names: Vec<&str> = late.iter().map(String::as_str).collect();
        tracing::info!(
            disks = names.join(", "),
            "waiting for disks that are not read yet"
        );
        let first = &mut session.observed;
        let mut known = self.known.with(&first.plan, &first.seen, &session.made);
        known.forget(late);
        if session.changed {
            known.regrow();
        }
        let store = mem::replace(&mut first.store, Ok(None));
        session.observed = self
            .plan_with(store, &known, ProbeWait::All)
            .map_err(RunError::Observe)?;
        found::remember(&session.observed);
        let observed = &session.observed;
        let mount_point = |name: &str| {
            let wanted = observed.wanted.iter().find(|wanted| wanted.name == name);
            wanted.and_then(|wanted| wanted.mount_point.as_deref())
        };
        let late_places: Vec<&str> = late.iter().filter_map(|name| mount_point(name)).collect();
        let is_due = |name: &str| {
            let is_below_late = |place| late_places.iter().any(|above| act::is_below(place, above));
            late.contains(name) || mount_point(name).is_some_and(is_below_late)
        };
        let mut plan = observed.plan.clone();
        plan.disks.retain(|disk| is_due(&disk.name));
        Ok(act::disks(session, &plan))
    }

    /// Observes again if the run changed anything. What was observed and not touched is not read
    /// again.
    fn observe_again(
        &mut self,
        session: &mut Session<'_>,
        wait: ProbeWait,
    ) -> Result<(), RunError<PlanDisksError>> {
        let outcomes = &mut self.outcomes.values();
        let touched =
            session.changed || outcomes.any(|outcome| !outcome.done.is_empty() || outcome.error.is_some());
        if touched {
            let last = &mut session.observed;
            let mut known = self.known.with(&last.plan, &last.seen, &session.made);
            known.regrow();
            let store = mem::replace(&mut last.store, Ok(None));
            session.observed = self.plan_with(store, &known, wait).map_err(RunError::Observe)?;
        }
        Ok(())
    }
}

/// Ends the tools that a killed run of this boot left running, before anything else touches their
/// disks.
fn end_orphans(provisioner: &DiskProvisioner<'_>, store: &Result<Option<JournalStore>, String>) {
    let Ok(Some(Ok(journal))) = store.as_ref().map(|store| store.as_ref().map(JournalStore::load)) else {
        return;
    };
    let begun = |entry: &&Entry| entry.boot_id == provisioner.boot_id && entry.progress == Progress::Intended;
    for entry in journal.entries.iter().filter(begun) {
        if let Some(tool) = provisioner.disks().end_orphan(entry) {
            tracing::warn!(
                disk = entry.name,
                tool,
                "ended a tool that a killed run left running"
            );
        }
    }
}
