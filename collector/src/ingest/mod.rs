//! The port on which agents connect that the collector cannot dial (`docs/decisions/0033-push.md`).
//!
//! ```text
//! accept ─▶ limits ─▶ handshake (this side is the TLS client) ─▶ certificate of a VM ─▶ PushedAgents ─▶ scrape
//!                                                            └─▶ none: enrolment ─▶ closed, the agent connects again
//! ```

mod admission;
mod listener;
mod metrics;

pub(crate) use listener::{Ingest, IngestParts};
pub(crate) use metrics::IngestMetrics;
