//! virtfleetctl as a library: queries the collector's API and prints the results. `explain` and
//! usually `render` work without a collector.
//!
//! ```text
//! arguments ─ cli ─▶ target (path, query, view) ─ client ─▶ answer ─ view ─▶ text ─ console ─▶ terminal
//!                                                    ▲                           │
//!                                                    └───────── watch ───────────┘
//! ```
//! The client finds the collector by `locate`: at a URL (`direct`), or in a cluster (`cluster`).

mod ca;
mod changes;
pub mod cli;
mod client;
mod cluster;
mod connection_args;
mod console;
mod direct;
mod enrolment;
mod explain;
mod fail;
mod input;
mod locate;
mod policy;
mod render;
mod rendered;
mod run;
mod summary;
mod table;
mod target;
mod text;
mod token_file;
mod tokens;
mod transport;
mod view;
mod watch;

#[cfg(test)]
mod ca_tests;
#[cfg(test)]
mod enrolment_tests;
#[cfg(test)]
mod labels_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tokens_tests;

pub use run::main;
#[cfg(test)]
mod tls_tests;
