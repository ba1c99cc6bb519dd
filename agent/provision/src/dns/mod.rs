//! The guest's DNS: what is asked for becomes what answers.
//!
//! ```text
//! settings ─ check ─▶ Asked ─┐
//! recover ─▶ host ─ observe ─┴─ candidates ─ ask ─ judge ─ plan (agent/core) ─▶ Plan ─ apply, verified or put back ─▶ dns.json
//! ```
//!
//! The plan decides and this only does. What is written is asked through before it counts; without an answer all is put back.

mod engine;
mod pass;
mod record;
mod step;
mod time;
mod verify;

pub use engine::{Engine, Observed, PlanDnsError, SETTLE};
pub use pass::{How, Passed};

pub use time::Until;

pub use step::failed;
pub(super) use step::run;

#[cfg(test)]
mod tests;
