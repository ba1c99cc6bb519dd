//! The guest's DNS: what is asked for becomes what answers.
//!
//! ```text
//! settings ─ check ─▶ Asked ─┐
//! recover ─▶ host ─ observe ─┴─ candidates ─ ask ─ judge ─ plan (agent/core) ─▶ Plan ─ apply, verified or put back ─▶ dns.json
//! ```
//!
//! The plan decides and this only does. What is written is asked through before it counts; without an answer all is put back.

mod provisioner;
mod record;
mod run;
mod step;
mod time;
mod verify;

pub use provisioner::{DnsProvisioner, Observed, SETTLE};
pub use run::DnsMode;
pub use step::failed;
pub(super) use step::run;

#[cfg(test)]
mod tests;
