//! virtfleet-collector as a library: the programs only parse their command lines and call this.
//!
//! ```text
//! inventory (folder) ─▶ fleet (index, snapshots) ─▶ api ─▶ HTTP ─▶ ctl (virtfleetctl), Prometheus
//!                         ▲          │ whom to dial
//!                         └─ heard ─ scrape ─▶ agents
//! ```

pub mod api;
pub mod cli;
pub mod config;
pub mod ctl;
pub mod events;
pub mod fleet;
pub mod health;
pub mod inventory;
pub mod labels;
pub mod leader;
pub mod objects;
pub mod scrape;
pub mod serve;
pub mod tenants;
pub mod writers;
