//! The guest's DNS: computes plans from settings and observed state. Nothing here sends packets or
//! accesses files.
//!
//! ```text
//! declared (wire::settings) ─ asked ─▶ Asked ─┐
//! host ─ observe ─▶ Seen ─ inherited ─────────┼─ merge (kubelet's) ─▶ Merged ─ candidates ─┐
//!   links, leases, owner, addresses, kubelet ─┘                                            │
//! Seen ──────────────────────────────── collision ─▶ excluded nameservers ─────────────────┤
//! host ─ probe ─▶ Answers ───────────── judge ─────▶ health of nameservers ────────────────┤
//!                                                                      Choice ◀─ choice ───┘
//! Choice, Seen ─ render (by owner) ─▶ Plan: steps, refusals
//! Plan ─▶ host ─▶ DnsState ─▶ findings, metrics, report
//! ```
//!
//! The types enforce three rules. The first nameserver of a [`choice::Choice`] has answered. A
//! choice never contains a nameserver that collides, lies or loops. A plan writes only
//! configurations from a choice.

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
pub mod lookup;
pub mod merge;
pub mod names;
mod our_file;
pub mod ours;
pub mod plan;
pub mod render;
pub mod resolv;
pub mod seen;
pub mod split;
mod standing_advice;
pub mod state;
mod stub;

pub use asked::Asked;
pub use choice::Choice;
pub use plan::Plan;
pub use resolv::ResolvConf;
pub use seen::Seen;
