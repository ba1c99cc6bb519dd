//! The states that are created for real, each with the script that says which verdict follows.

mod agent;
mod clock;
mod disks;
mod guest;
mod network;

use anyhow::Result;

use super::world::{Seen, World};

/// The script of a live migration, here a pause.
const MIGRATION: &str = "migration-felt";

/// A state of the guest or its network.
pub(crate) struct GuestState {
    /// File name of its script, in `tests/fixtures/health`.
    pub(crate) script: &'static str,
    /// Creates it.
    pub(crate) create: fn(&World) -> Result<()>,
    /// Whether the collector and the Node show it.
    pub(crate) shows: fn(&Seen) -> bool,
    /// Removes it; afterwards the guest becomes healthy.
    pub(crate) undo: fn(&World) -> Result<()>,
}

/// The states that show within seconds, in the order in which they are created.
pub(crate) fn quick() -> impl Iterator<Item = GuestState> {
    guest::STATES
        .into_iter()
        .chain(clock::STATES)
        .chain(agent::STATES)
        .chain(network::STATES)
        .filter(|state| state.script != MIGRATION)
}

/// The states whose time depends on the machine: disks, which the guest's kernel and a reconcile
/// run must notice, and a pause, after which the guest's clock catches up.
pub(crate) fn slow() -> impl Iterator<Item = GuestState> {
    let migration = guest::STATES
        .into_iter()
        .filter(|state| state.script == MIGRATION);
    migration.chain(disks::STATES)
}
