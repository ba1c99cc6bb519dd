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
//! writers: leader ─▶ labels (Nodes), health (GuestHealth), objects (statuses), events, sources ─▶ API servers
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
mod delivered_settings;
mod dial_guard;
pub mod doctor;
pub mod drain;
pub mod enrolment;
pub mod events;
pub mod fleet;
mod fleet_series;
pub mod gardener;
pub mod health;
pub mod history;
mod host_port;
mod ingest;
pub mod inventory;
pub mod labels;
pub mod leader;
mod listeners;
pub mod mla;
pub mod objects;
mod open_files;
mod page;
mod paged_list;
mod panics;
mod print;
mod probes;
mod regular_file;
pub mod relay;
pub mod scrape;
pub mod serve;
mod slots;
pub mod sources;
pub mod tenants;
#[cfg(test)]
mod tls_testing;
pub mod tokens;
mod user_account;
pub mod volumes;
pub mod writers;
