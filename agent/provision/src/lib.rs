//! Root's part of the agent (`virtfleet-agent apply`): reconcile runs over disks, DNS and queues. A
//! run executes the steps of one stage in their order and records the results in
//! `/run/virtfleet/state/guest.json`, from which the report is made. It touches the guest through
//! `virtfleet-agent-host` only; nothing but the CLI depends on this crate.
//!
//! ```text
//! /run/virtfleet/ask ─ take ─▶ triggers ─┐
//! lock ──────────────────────────────────┴▶ steps (table): observe ─▶ decide (agent/core) ─▶ act (host) ─▶ guest.json
//! ```
//!
//! Disks, DNS and NICs share one [`engine`]: recover, observe, plan, compare, apply, verify,
//! record. To add a step: a file here with its `run`, and a line in [`STEPS`]. A failed step stops
//! only the steps that need it.

pub mod disks;
pub mod dns;
pub mod engine;
mod guest;
mod health;
mod machine;
pub mod nic;
mod node_proof;
mod print;
mod settings;
mod stages;
mod steps;

pub use engine::{Mode, RunError, RunResult};
pub use guest::{Guest, Report};
pub use machine::BootIdentity;
pub use print::text;
pub use stages::{ADMIN_LOCK_TIMEOUT, Applied, ApplyError, LOCK_FILE, apply};
pub use steps::{STEPS, Step};

#[cfg(test)]
mod tests;
