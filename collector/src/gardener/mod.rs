//! Admission webhook for OperatingSystemConfigs of Gardener: adds the agent to machines of shoots.
//! Runs on the seed, beside no collector.
//!
//! ```text
//! flags, Delivery ─ items ─▶ AgentItems ─┐
//! API server ─ POST /mutate ─▶ server ─ review ─▶ plan (virtfleet_delivery::osc) ─▶ response
//! ```
//! It reads no cluster and has no rights. A request that it cannot process never prevents an
//! object: what is readable is allowed unchanged, and the rest gets 400, which the API server
//! ignores by the shipped `failurePolicy`.

mod args;
mod items;
mod metrics;
mod review;
mod run;
mod server;

pub use args::GardenerArgs;
pub use items::load;
pub use run::{check, run};

#[cfg(test)]
mod tests;
