//! Queues of network interfaces: from what was seen and what is asked for to what is done, as values.
//!
//! ```text
//! settings ─ check ─▶ Asked ─┐
//! Machine, NicState ─────────┴─ plan ─▶ Plan ─ the pass does it ─▶ NicState
//! ```

pub mod asked;
pub mod carry;
pub mod mask;
pub mod plan;
pub mod spread;
pub mod state;

pub use asked::{Asked, check};
pub use plan::{Plan, plan};
