//! Queues of network interfaces: observes them, and sets the requested number.
//!
//! ```text
//! settings ─ check ─▶ Asked ───┐
//! World ─ observe ─▶ Machine ──┴ plan (agent/core) ─▶ Plan ─ set, verify or restore ─▶ nic.json
//! ```
//!
//! The plan decides; this module only carries it out. The number of queues is set while traffic
//! flows. Afterwards the run inspects the link, its addresses and its counters, and restores the
//! earlier number if they are not as before.

mod change;
mod channels;
mod measure;
mod plug;
mod provisioner;
mod run;
mod step;
mod time;
mod wanted;
mod world;

pub use plug::real;
pub use provisioner::NicProvisioner;
pub use run::NicMode;
pub use wanted::{Wanted, wanted};
pub use world::World;

pub use step::failed;
pub(super) use step::run;

#[cfg(test)]
mod tests;
