//! The contracts between the agent, the collector and the CLI: types, settings, findings and the
//! exposition format. Everything here is a value: no file, no socket, no clock. Both programs read
//! and write these types, so a change here is a change of contract (see `docs/contracts.md`).
//!
//! - [`ids`]: names and identifiers that must not be mixed up;
//! - [`report`]: what a guest says of itself, with [`identity`] and [`finding`]s;
//! - [`enrolment`]: how an agent gets its certificate;
//! - [`settings`]: the agent's settings and their JSON Schema;
//! - [`layered`]: YAML fragments → one merged, located, checked value (used for every settings file
//!   and manifest);
//! - [`exposition`]: the one page writer, and the reader of such pages.

pub mod duration;
pub mod enrolment;
pub mod exposition;
pub mod finding;
pub mod identity;
pub mod ids;
pub mod layered;
pub mod report;
pub mod settings;
