//! virtfleetctl as a library: queries the collector's API and prints the results. `explain` and
//! usually `render` work without a collector.
//!
//! ```text
//! arguments ─ cli ─▶ target (path, query, view) ─ client ─▶ answer ─ view ─▶ text ─ console ─▶ terminal
//!                                                    ▲                           │
//!                                                    └───────── watch ───────────┘
//! ```

mod ca;
mod changes;
pub mod cli;
mod client;
mod console;
mod enrolment;
mod explain;
mod fail;
mod input;
mod policy;
mod render;
mod rendered;
mod run;
mod summary;
mod table;
mod target;
mod text;
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

pub use run::main;
#[cfg(test)]
mod tls_tests;
