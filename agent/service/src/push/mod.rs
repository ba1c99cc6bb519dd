//! The way on which collectors reach this agent: who pulled it last, and the connection that it
//! opens to the collector if none does (decision 0033).
//!
//! ```text
//! routes ─ pulled ─▶ WayTracker ◀─ Pusher: scheduler ─▶ dial ─▶ TLS, HTTP server ─▶ routes
//!                        └─▶ report, metrics, file for doctor
//! ```

mod counters;
mod pusher;
mod token;
mod tracker;

pub use counters::PushCounters;
pub use pusher::Pusher;
pub use token::TokenFile;
pub use tracker::{PullWay, WayTracker};
