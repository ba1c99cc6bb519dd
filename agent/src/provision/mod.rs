//! `virtfleet-agent apply`: root's part of the agent, in passes. A pass runs the steps of one stage, one after the other, and
//! records what came of them in `/run/virtfleet/state/guest.json`, from which the report is made.
//!
//! ```text
//! /run/virtfleet/ask ─ take ─▶ triggers ─┐
//! lock ──────────────────────────────────┴▶ steps (table): observe ─▶ decide (agent/core) ─▶ act (host) ─▶ guest.json
//! ```
//!
//! To add a step: a file here with its `run`, and a line in [`STEPS`]. A step that fails stops none but those that need it.

mod ask;
pub mod disks;
pub mod dns;
mod health;
pub mod nic;
mod pass;
mod print;
mod record;
mod settings;
mod steps;

pub use ask::{ASK_DIRECTORY, AskError, ask, ask_for_dns};
pub use health::{HEALTH_FILE, ReadHealthError};
pub use pass::{Applied, ApplyError, LOCK_FILE, PATIENCE, apply};
pub use print::print;
pub use record::{GUEST_FILE, ReadRecordError, read_record};
pub use steps::{Guest, STEPS, Step};

pub(crate) use health::parse_health;
pub(crate) use record::parse_record;

#[cfg(test)]
mod tests;
