//! virtfleet-collector as a library: the programs only parse their command lines and call this.
//!
//! ```text
//! inventory (folder, cluster) ─▶ fleet (index, snapshots) ─▶ api ─▶ HTTP ─▶ ctl (virtfleetctl), Prometheus
//!     │                            ▲    │    │ whom to dial
//!     │ tenants: how user          │    │    └─ scrape ─▶ agents
//!     │ clusters are reached       └────│─ heard ─┘
//!     ▼                                 ▼
//! writers: leader (who may) ─▶ labels (Nodes), health (GuestHealth), objects (statuses), events ─▶ API servers
//! ```
//! Only `inventory/cluster` reads Kubernetes continuously, and only what `writers` starts writes to it, as the leader.

pub mod api;
mod bounded;
pub mod cli;
pub mod config;
pub mod credentials;
pub mod ctl;
pub mod doctor;
pub mod events;
pub mod fleet;
pub mod health;
pub mod inventory;
pub mod labels;
pub mod leader;
pub mod objects;
mod page;
pub mod scrape;
pub mod serve;
pub mod tenants;
#[cfg(test)]
mod tls_testing;
pub mod writers;
