//! virtfleetctl as a library: queries the collector's API and prints the results. `explain`,
//! `disks`, `completion`, `man` and usually `render` work without a collector.
//!
//! ```text
//! arguments ─ cli ─▶ target (path, query, view) ─ client ─▶ answer ─ view ─▶ text ─ console ─▶ terminal
//!                                                    ▲                           │
//!                                                    └───────── watch ───────────┘
//! ```
//! The client finds the collector by `locate`: at a URL (`direct`), or in a cluster (`cluster`).

mod bundle;
mod ca;
mod changes;
pub mod cli;
mod client;
mod cluster;
mod connection_args;
mod console;
mod direct;
mod disks;
mod enrolment;
mod explain;
mod fail;
mod filters;
mod infra_cluster;
mod input;
mod install;
mod install_agents;
mod install_reach;
mod labels_args;
mod locate;
pub mod manual;
mod mla_args;
mod names;
mod policy;
mod render;
mod render_args;
mod rendered;
mod run;
mod sort;
mod status_wait;
mod story_args;
mod summary;
mod table;
mod target;
mod text;
mod token_file;
mod tokens;
mod transport;
mod user_cluster;
mod view;
mod watch;

#[cfg(test)]
mod ca_tests;
#[cfg(test)]
mod enrolment_tests;
#[cfg(test)]
mod history_tests;
#[cfg(test)]
mod install_agents_tests;
#[cfg(test)]
mod labels_tests;
#[cfg(test)]
mod mla_tests;
#[cfg(test)]
mod story_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tokens_tests;
#[cfg(test)]
mod watch_tests;

pub use run::main;
#[cfg(test)]
mod tls_tests;
