//! The input of a plan, and the plan.

use virtfleet_agent_core::disks::{Plan, Seen, Wanted, journal::Journal, wanted::WantedProblem};
use virtfleet_agent_host::{JournalStore, MountsError, disks::DevicesError};

/// An observation of the disks, and the plan that follows from it.
#[derive(Debug)]
pub struct Observed {
    /// The declared disks whose settings are valid.
    pub wanted: Vec<Wanted>,
    /// The problems of the other declared disks.
    pub problems: Vec<WantedProblem>,
    pub seen: Seen,
    pub journal: Journal,
    pub plan: Plan,
    pub(super) store: Result<Option<JournalStore>, String>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanDisksError {
    /// The disks cannot be observed.
    #[error(transparent)]
    Devices(#[from] DevicesError),
    /// The mounts cannot be read.
    #[error(transparent)]
    Mounts(#[from] MountsError),
}
