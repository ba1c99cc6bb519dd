//! The agent's page from fixture roots: golden pages, broken input, hung mounts, failing
//! collectors.
//!
//! A golden page lies beside its roots as `expected.prom`; `UPDATE_GOLDEN=1` writes it again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod broken;
mod cgroups;
mod clock_calls;
mod faults;
mod network_calls;
mod nic_calls;
mod pages;
mod processor;
mod service_calls;
mod settings;
mod system;
mod textfile;
mod world;
