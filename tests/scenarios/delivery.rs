//! The delivery as a guest runs it, in temporary roots: rendered examples, the boot command, the
//! script that installs the agent.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

mod cases;
mod corpus;
mod examples;
mod files;
mod guest;
mod machines;
mod power;
mod refused;
mod repair;
mod sources;
