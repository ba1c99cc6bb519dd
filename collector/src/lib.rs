//! virtfleet-collector as a library: the programs only parse their command lines and call it. It
//! uses the network, the API servers and the manifest folder; on disk it writes only the folder of
//! the authority. Decisions are made in `virtfleet-collector-core`.
//!
//! ```text
//! inventory (folder, cluster) ─▶ fleet (index, snapshots) ─▶ api ─▶ HTTP ─▶ ctl (virtfleetctl), Prometheus
//!     │                            ▲    │    │ dial targets         ingest ◀─ agents that connect
//!     │ tenants: how user          │    │    └─ scrape ─▶ agents  ◀─ connections ┘
//!     │ clusters are reached       └───│─ results ┘
//!     ▼                                 ▼
//! writers: leader ─▶ labels (Nodes), health (GuestHealth), objects (statuses), events ─▶ API servers
//! ```
//! Only `inventory/cluster` watches Kubernetes. Only the tasks that `writers` starts write to it,
//! while this process leads. `relay` is a program of its own: it runs in a tenant's network and
//! passes bytes between scrape and agents.

pub mod access;
mod agent_tasks;
pub mod api;
mod bounded;
pub mod ca;
pub mod cli;
mod clock;
pub mod config;
pub mod credentials;
pub mod ctl;
pub mod doctor;
pub mod enrolment;
pub mod events;
pub mod fleet;
pub mod health;
mod ingest;
pub mod inventory;
pub mod labels;
pub mod leader;
pub mod objects;
mod open_files;
mod page;
mod print;
pub mod relay;
pub mod scrape;
pub mod serve;
mod slots;
pub mod tenants;
#[cfg(test)]
mod tls_testing;
pub mod tokens;
pub mod writers;
