//! The guest's DNS: from what is asked for and what is there to what is done, as values. Nothing here sends a packet or touches a file.
//!
//! ```text
//! declared (wire::settings) ─ asked ─▶ Asked ─┐
//! host ─ observe ─▶ Seen ─ inherited ─────────┼─ merge (kubelet's) ─▶ Merged ─ candidates ─┐
//!   links, leases, owner, addresses, kubelet ─┘                                            │
//! Seen ───────────────────────────────────────────── collision ─▶ what may not be asked ───┤
//! host ─ probe ─▶ Answers ───────────────────────────────────────── what answers ──────────┴─ choice ─▶ Choice
//! Choice, Seen ─ render (by owner) ─▶ Plan: Steps, Refusals ─▶ host ─▶ State ─▶ findings, metrics, report
//! ```
//!
//! Three rules hold by type. A [`choice::Choice`] has a nameserver that has answered, and has it first. One that collides, lies or loops never gets into one.
//! And what a plan writes comes from a [`choice::Choice`] alone.

pub mod advice;
pub mod answers;
pub mod asked;
pub mod choice;
pub mod collision;
pub mod effective;
pub mod findings;
#[cfg(test)]
mod fixtures;
pub mod given;
pub mod inherited;
pub mod kubelet;
pub mod merge;
pub mod names;
pub mod ours;
pub mod plan;
pub mod render;
pub mod resolv;
pub mod seen;
pub mod split;
pub mod state;

pub use asked::Asked;
pub use choice::Choice;
pub use plan::Plan;
pub use resolv::ResolvConf;
pub use seen::Seen;
