//! Queues of network interfaces: computes plans from settings and machine state.
//!
//! ```text
//! settings ─ check ─▶ Asked ─┐ Machine, NicState ─────────┴─ plan ─▶ Plan ─ a run applies it ─▶
//! NicState
//! ```

pub mod asked;
pub mod carry;
pub mod mask;
pub mod plan;
pub mod spread;
pub mod state;

pub use asked::{Asked, check};
pub use plan::{Plan, plan};
