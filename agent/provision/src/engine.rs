//! The engine: the order of one reconcile run, the same for disks, DNS and network interfaces.
//!
//! ```text
//! recover ─▶ observe (plan included) ─▶ compare with the plan that an admin has read ─▶ apply (verify included) ─▶ record
//! ```
//!
//! The domains plug in with [`Domain`]. The engine alone decides in which order their methods run,
//! when a run stops, and when the state file is written.

use std::{error::Error, time::Duration};

use virtfleet_agent_core::pass::{RunOutcome, Stage};
use virtfleet_agent_host::Roots;
use virtfleet_agent_state::{StateFile, StateRecord, WriteStateError};

use crate::guest::Report;

/// Who asked for a run, and what the run may do.
#[derive(Debug)]
pub struct Mode<'a, P> {
    /// The stage that the run belongs to. A run that an admin starts counts as
    /// [`Stage::Reconcile`].
    pub stage: Stage,
    /// An admin started the run (`virtfleet-agent apply <domain>`). It also does what `report-only`
    /// only reports, and retries what an earlier run rolled back.
    pub by_admin: bool,
    /// The plan that the admin has read. If the plan of this run differs, the run stops before it
    /// changes anything.
    pub expected: Option<&'a P>,
    /// How long the run may take, with its rollback; none: as long as the domain allows.
    pub budget: Option<Duration>,
}

impl<P> Clone for Mode<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Mode<'_, P> {}

impl<'a, P> Mode<'a, P> {
    /// A run of `stage` in the background: no caller waits for it.
    pub fn of_stage(stage: Stage, budget: Option<Duration>) -> Self {
        Self {
            stage,
            by_admin: false,
            expected: None,
            budget,
        }
    }

    /// A run that an admin started, with the plan that the admin has read, if there is one.
    pub fn of_admin(expected: Option<&'a P>) -> Self {
        Self {
            stage: Stage::Reconcile,
            by_admin: true,
            expected,
            budget: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct RunResult<P, S> {
    /// What is still to be done after the run.
    pub plan: P,
    pub state: S,
    /// True if the run changed the guest.
    pub changed: bool,
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E> {
    /// The guest cannot be observed, so there is no plan. The state file names the reason.
    #[error(transparent)]
    Observe(E),
    #[error("cannot record the result of the run")]
    State(#[source] WriteStateError),
}

impl<E> From<WriteStateError> for RunError<E> {
    fn from(error: WriteStateError) -> Self {
        Self::State(error)
    }
}

/// What the engine needs of a domain: one value of the implementing type is one run.
pub(crate) trait Domain {
    /// What is to be done, and why; made by `agent/core`.
    type Plan;
    /// Everything that was observed, with the plan for it.
    type Observed;
    /// The record in the state file.
    type State: StateRecord + 'static;
    /// Why the guest cannot be observed.
    type Error: Error;

    const STATE: &'static StateFile<Self::State>;

    /// The guest's trees.
    fn roots(&self) -> &Roots;

    /// Completes or undoes what an interrupted run left.
    fn recover(&mut self) -> Result<(), WriteStateError>;

    /// Observes the guest and plans.
    fn observe(&mut self) -> Result<Self::Observed, Self::Error>;

    /// The plan for what was observed.
    fn plan(observed: &Self::Observed) -> &Self::Plan;

    /// True if `plan` does the same as the plan that an admin has read, for the same reasons.
    fn agrees(expected: &Self::Plan, plan: &Self::Plan) -> bool;

    /// Applies the plan as far as the mode allows, verifies the changes, rolls back those that do
    /// not work, and observes again.
    fn apply(&mut self, observed: Self::Observed) -> Result<Self::Observed, RunError<Self::Error>>;

    /// The record of the run.
    fn state(&mut self, observed: &mut Self::Observed) -> Self::State;

    /// The record of a run that ended early; none: the record of the previous run stays.
    fn state_after_error(&mut self, error: &RunError<Self::Error>) -> Option<Self::State>;

    /// The state was recorded.
    fn recorded(&mut self, _state: &Self::State) {}

    /// Takes the plan out of what was observed.
    fn into_plan(observed: Self::Observed) -> Self::Plan;

    /// True if the run changed the guest.
    fn changed(&self) -> bool;
}

/// What [`run`] returns for a domain.
pub(crate) type Run<D> =
    Result<Option<RunResult<<D as Domain>::Plan, <D as Domain>::State>>, RunError<<D as Domain>::Error>>;

/// Runs one domain once. `None`: the plan is not the one that the admin has read, and nothing was
/// changed or recorded.
///
/// # Errors
/// The guest cannot be observed, or the state cannot be recorded.
pub(crate) fn run<D: Domain>(domain: &mut D, mode: Mode<'_, D::Plan>) -> Run<D> {
    let result = completed(domain, mode);
    if let Err(error) = &result
        && let Some(state) = domain.state_after_error(error)
    {
        record(domain, &state)?;
    }
    result
}

fn completed<D: Domain>(domain: &mut D, mode: Mode<'_, D::Plan>) -> Run<D> {
    domain.recover()?;
    let observed = domain.observe().map_err(RunError::Observe)?;
    let is_other = |expected| !D::agrees(expected, D::plan(&observed));
    if mode.expected.is_some_and(is_other) {
        return Ok(None);
    }
    let mut observed = domain.apply(observed)?;
    let state = domain.state(&mut observed);
    record(domain, &state)?;
    Ok(Some(RunResult {
        plan: D::into_plan(observed),
        state,
        changed: domain.changed(),
    }))
}

fn record<D: Domain>(domain: &mut D, state: &D::State) -> Result<(), WriteStateError> {
    D::STATE.write(domain.roots(), state)?;
    domain.recorded(state);
    Ok(())
}

/// The report of a stage's step: `outcome` and `summary` read the recorded state.
pub(crate) fn report<P, S, E: Error>(
    result: Result<Option<RunResult<P, S>>, RunError<E>>,
    outcome: impl FnOnce(&RunResult<P, S>) -> RunOutcome,
    summary: impl FnOnce(&S) -> String,
) -> Report {
    match result {
        Err(error) => Report::new(RunOutcome::Failed, error_chain(error)),
        Ok(None) => Report::new(RunOutcome::Failed, "the run had no plan to compare with"),
        Ok(Some(result)) => Report::new(outcome(&result), summary(&result.state)),
    }
}

/// An error with its causes, in one line. A cause that ends the text already is not repeated.
pub(crate) fn error_chain(error: impl Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}
