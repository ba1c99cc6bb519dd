//! The guest's DNS: observes it, probes nameservers, and writes the requested configuration.
//!
//! ```text
//! settings ─ check ─▶ Asked ───────────────┐
//! recover ─▶ host ─ observe ─ candidates ─┴─ probe ─ judge ─ plan (agent/core) ─▶ Plan
//! Plan ─ apply ─ verify (restore on failure) ─▶ dns.json
//! ```
//!
//! The plan decides; this module only carries it out. After a change it probes the nameservers in
//! use. If none answers, it restores the configuration of before.

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
