//! The guest's DNS: what is asked for becomes what answers.
//!
//! ```text
//! settings ─ check ─▶ Asked ─┐
//! recover ─▶ host ─ observe ─┴─ candidates ─ ask ─ judge ─ plan (agent/core) ─▶ Plan ─ apply, verified or put back ─▶ dns.json
//! ```
//!
//! The plan decides and this only does. What is written is asked through before it counts; without an answer all is put back.

mod engine;
mod network;
mod pass;
mod record;
mod state;
mod step;
mod time;
mod verify;

pub use engine::{Engine, Observed, PlanDnsError, SETTLE};
pub use network::{Asker, Network};
pub use pass::{How, Passed};
pub use state::{DNS_FILE, ReadDnsError, read_dns};
pub use step::{Wanted, wanted};
pub use time::Until;

pub(crate) use state::parse_dns;
pub(super) use step::run;
pub(crate) use step::{failed, summary};

#[cfg(test)]
mod tests;
