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
mod pass;
mod plug;
mod state;
mod step;
mod world;

pub use pass::{Engine, How, Passed};
pub use plug::real;
pub use state::{NIC_FILE, ReadNicError, WriteNicError, parse_nic, read_nic};
pub use step::{Wanted, wanted};
pub use world::World;

pub(super) use step::run;
pub(crate) use step::{failed, summary};

#[cfg(test)]
mod tests;
