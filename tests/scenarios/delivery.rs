//! The delivery as a guest runs it, in temporary roots: rendered examples, the boot command, the script that brings the agent.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

#[path = "delivery/examples.rs"]
mod examples;
#[path = "delivery/guest.rs"]
mod guest;
#[path = "delivery/power.rs"]
mod power;
#[path = "delivery/repair.rs"]
mod repair;
#[path = "delivery/sources.rs"]
mod sources;
