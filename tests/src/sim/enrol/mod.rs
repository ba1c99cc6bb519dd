//! Simulated agents that start without a certificate and enrol: the agent's side of
//! `docs/decisions/0029-enrolment.md`, with faults.
//!
//! ```text
//! AgentDisk (key, certificate) ─▶ AgentHost::run ─ listener or connection, TLS ─▶ RunningAgent
//!                                       protocol: the two requests
//! ```

mod disk;
mod fault;
mod host;
mod protocol;
mod push;
mod spec;

pub use disk::AgentDisk;
pub use fault::EnrolFault;
pub use host::{AgentHost, RunningAgent};
pub use push::{PushPace, PushTo};
pub use spec::AgentSpec;
