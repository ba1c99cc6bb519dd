//! Contracts between the agent, the collector and the CLI: types, settings, findings and the
//! exposition format. This crate only has values: it uses no file, socket or clock. Both programs
//! read and write these types, so a change here changes a contract (see `docs/contracts.md`).
//!
//! - [`ids`]: types for names and identifiers, so that they cannot be confused;
//! - [`report`]: the report of a guest, with [`identity`] and [`finding`]s;
//! - [`enrolment`]: how an agent gets its certificate, and [`node_proof`], evidence for it;
//! - [`host_port`]: the address of a service, with a name or an IP address;
//! - [`settings`]: the agent's settings and their JSON Schema;
//! - [`layered`]: YAML fragments → one merged and validated value, with file and line of each part
//!   (for every settings file and manifest);
//! - [`exposition`]: the writer and the parser of metrics pages.

#![warn(missing_docs)]

pub mod duration;
pub mod enrolment;
pub mod exposition;
pub mod finding;
pub mod host_port;
pub mod identity;
pub mod ids;
pub mod layered;
pub mod node_proof;
pub mod report;
pub mod settings;
