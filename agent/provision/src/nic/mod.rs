//! Queues of network interfaces: what is asked for becomes what the kernel has.
//!
//! ```text
//! settings ─ check ─▶ Asked ─┐
//! World ─ observe ─▶ Machine ┴ plan (agent/core) ─▶ Plan ─ set, verified or put back ─▶ nic.json
//! ```
//!
//! The plan decides and this only does. The number of queues is set while traffic flows: the link, its addresses and its counters are watched afterwards, and what was
//! there before comes back when they do not.

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
