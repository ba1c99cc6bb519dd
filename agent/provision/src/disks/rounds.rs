//! A pass in one round or two: what answers soon is put in its place, and what is slow or hangs is waited for after that.
//!
//! In the first round a disk that has not answered counts as one that cannot be read, and every rule for that holds: nothing follows from it but that its own
//! disk is left alone. The second round waits for it, plans anew, and does what is planned for it and for those that are mounted on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
};

use virtfleet_agent_core::disks::{
    Plan,
    journal::{Entry, Progress},
    state::DisksState,
};
use virtfleet_agent_host::{JournalStore, sweep_temporary_files};
use virtfleet_agent_state::DISKS_STATE;
use virtfleet_wire::settings::DiskSettings;

use super::{
    act::{self, Outcome},
    files, found, gate,
    looks::{Looks, Wait},
    observe::Known,
    pass::{Engine, EngineError, Observed, Passed, chain},
    record, seed,
    session::Session,
    unlock, unread,
};

impl Engine<'_> {
    /// Observes, plans and does what the plan says; records how the disks stand then.
    ///
    /// `expected` is a plan that a person has read: when the one that follows now is another, nothing is done and `None` comes back.
    pub fn apply(
        &self,
        declared: &[DiskSettings],
        reconcile: bool,
        expected: Option<&Plan>,
    ) -> Result<Option<Passed>, EngineError> {
        // Before anything can fail. Not where a person has read the plan, of which it is a part.
        let mut stood = match expected {
            None => gate::stand(self, declared),
            Some(_) => gate::Stood::default(),
        };
        if stood.written && !reconcile {
            gate::hold(self, &mut stood);
        }
        let previous = DISKS_STATE.read(self.roots, self.boot_id).unwrap_or_default();
        let gate_written = stood.written;
        let done = thread::scope(|scope| {
            let pass = Pass {
                engine: self,
                declared,
                previous: &previous,
                known: Known::of(&previous),
                looks: Looks::new(scope, self.disks()),
            };
            pass.run(expected, stood)
        });
        match done {
            Ok(Some(done)) => {
                gate::open(
                    self,
                    &done.passed.state,
                    reconcile && !done.gate_written,
                    reconcile,
                );
                Ok(Some(done.passed))
            }
            Ok(None) => Ok(None),
            Err(error) => {
                self.failed(declared, &previous, &error, gate_written, reconcile)?;
                Err(error)
            }
        }
    }

    /// Nothing is known: the gate stands all the same.
    fn failed(
        &self,
        declared: &[DiskSettings],
        previous: &DisksState,
        error: &EngineError,
        gate_written: bool,
        reconcile: bool,
    ) -> Result<(), EngineError> {
        let written = gate_written | gate::stand(self, declared).written;
        let mut reason = chain(error);
        if written && let Err(error) = unread::reload(self) {
            reason = format!("{reason}; {}", chain(error));
        }
        let state = record::failed(self, previous, &reason);
        DISKS_STATE.write(self.roots, &state)?;
        gate::open(self, &state, reconcile && !written, reconcile);
        Ok(())
    }
}

/// Tools of a run that was killed come to their end before anything else touches their disks.
fn end_orphans(engine: &Engine<'_>, store: &Result<Option<JournalStore>, String>) {
    let Ok(Some(Ok(journal))) = store.as_ref().map(|store| store.as_ref().map(JournalStore::load)) else {
        return;
    };
    let begun = |entry: &&Entry| entry.boot_id == engine.boot_id && entry.progress == Progress::Intended;
    for entry in journal.entries.iter().filter(begun) {
        if let Some(tool) = engine.disks().end_orphan(entry) {
            tracing::warn!(
                disk = entry.name,
                tool,
                "ended a tool of an earlier run that did not end by itself"
            );
        }
    }
}

/// One pass.
struct Pass<'p, 's, 'e> {
    engine: &'p Engine<'e>,
    declared: &'p [DiskSettings],
    previous: &'p DisksState,
    known: Known,
    looks: Looks<'s, 'e>,
}

/// What came of it.
struct Done {
    passed: Passed,
    gate_written: bool,
}

impl Pass<'_, '_, '_> {
    fn run(mut self, expected: Option<&Plan>, stood: gate::Stood) -> Result<Option<Done>, EngineError> {
        let engine = self.engine;
        // Before anything is mounted by us, so that no mount of ours lies above it.
        let store = JournalStore::open(engine.roots).map(Some).map_err(chain);
        end_orphans(engine, &store);
        for path in sweep_temporary_files(engine.roots) {
            tracing::info!(path, "removed a temporary file that a killed run left");
        }
        seed::clean(engine);
        let wait = if expected.is_some() {
            Wait::Full
        } else {
            Wait::Short
        };
        let mut observed = self.plan(store, &self.known.clone(), wait)?;
        if let Some(expected) = expected {
            unlock::refuse_shut(engine, &mut observed);
            if !expected.agrees_with(&observed.plan) {
                return Ok(None);
            }
        }
        found::remember(&observed);
        let mut session = Session::new(engine, observed);
        let mut gate_written = stood.written;
        session.take(stood);
        let plan = session.observed.plan.clone();
        gate_written |= files::common(&mut session, &plan);
        let mut outcomes = act::disks(&mut session, &plan);
        let late = self.looks.under_way();
        if !late.is_empty() {
            // Whatever becomes of the late ones, and of this pass with them: the gate asks how the others stand.
            self.record(&mut session, &mut outcomes, Wait::Short)?;
            for (name, again) in self.again(&mut session, &late)? {
                let outcome = outcomes.entry(name).or_default();
                outcome.done.extend(again.done);
                outcome.error = again.error.or(outcome.error.take());
            }
        }
        session.reload();
        let changed = session.changed;
        let state = self.record(&mut session, &mut outcomes, Wait::Full)?;
        let passed = Passed { state, changed };
        Ok(Some(Done { passed, gate_written }))
    }

    fn plan(
        &mut self,
        store: Result<Option<JournalStore>, String>,
        known: &Known,
        wait: Wait,
    ) -> Result<Observed, EngineError> {
        self.engine
            .plan_with(self.declared, store, known, &mut self.looks, wait)
    }

    /// The second round: for those that were late, and for what is mounted below these. The others have had their turn.
    fn again(
        &mut self,
        session: &mut Session<'_>,
        late: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, Outcome>, EngineError> {
        let names: Vec<&str> = late.iter().map(String::as_str).collect();
        tracing::info!(disks = names.join(", "), "waited for: not all was read yet");
        let first = &mut session.observed;
        let mut known = self.known.with(&first.plan, &first.seen, &session.made);
        known.forget(late);
        if session.changed {
            known.regrow();
        }
        let store = std::mem::replace(&mut first.store, Ok(None));
        session.observed = self.plan(store, &known, Wait::Full)?;
        found::remember(&session.observed);
        let observed = &session.observed;
        let places: Vec<&str> = observed
            .wanted
            .iter()
            .filter(|wanted| late.contains(&wanted.name))
            .filter_map(|wanted| wanted.mount_point.as_deref())
            .collect();
        let their_turn = |name: &str| {
            let wanted = observed.wanted.iter().find(|wanted| wanted.name == name);
            let at = wanted.and_then(|wanted| wanted.mount_point.as_deref());
            late.contains(name) || at.is_some_and(|at| places.iter().any(|above| act::is_below(at, above)))
        };
        let mut plan = observed.plan.clone();
        plan.disks.retain(|disk| their_turn(&disk.name));
        Ok(act::disks(session, &plan))
    }

    /// Looks again, lightly: what was looked at and not touched is not looked at again.
    fn record(
        &mut self,
        session: &mut Session<'_>,
        outcomes: &mut BTreeMap<String, Outcome>,
        wait: Wait,
    ) -> Result<DisksState, EngineError> {
        let engine = self.engine;
        let touched = session.changed
            || outcomes
                .values()
                .any(|outcome| !outcome.done.is_empty() || outcome.error.is_some());
        if touched {
            let last = &mut session.observed;
            let mut known = self.known.with(&last.plan, &last.seen, &session.made);
            known.regrow();
            let store = std::mem::replace(&mut last.store, Ok(None));
            session.observed = self.plan(store, &known, wait)?;
        }
        let last = &session.observed;
        let mut plan = last.plan.clone();
        record::shut(&mut plan, outcomes, session.shut.clone());
        let state = record::state(
            engine,
            &record::After {
                declared: self.declared,
                wanted: &last.wanted,
                problems: &last.problems,
                seen: &last.seen,
                plan: &plan,
                journal: &last.journal,
                outcomes,
                failures: &session.failures,
                recovered: &session.recovered,
                previous: self.previous,
            },
        );
        DISKS_STATE.write(engine.roots, &state)?;
        Ok(state)
    }
}
