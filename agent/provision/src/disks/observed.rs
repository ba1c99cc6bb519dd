//! What a plan is made from.

use virtfleet_agent_core::disks::{Plan, Seen, Wanted, journal::Journal, wanted::WantedProblem};
use virtfleet_agent_host::{JournalStore, MountsError, disks::DevicesError};

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

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanDisksError {
    /// The disks.
    #[error(transparent)]
    Devices(#[from] DevicesError),
    /// The mounts.
    #[error(transparent)]
    Mounts(#[from] MountsError),
}
