//! The agent's page from fixture roots: golden pages, broken input, hung mounts, failing collectors.
//!
//! A golden page lies beside its roots as `expected.prom`; `UPDATE_GOLDEN=1` writes it anew.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "exposition/broken.rs"]
mod broken;
#[path = "exposition/cgroups.rs"]
mod cgroups;
#[path = "exposition/clock_calls.rs"]
mod clock_calls;
#[path = "exposition/faults.rs"]
mod faults;
#[path = "exposition/network_calls.rs"]
mod network_calls;
#[path = "exposition/nic_calls.rs"]
mod nic_calls;
#[path = "exposition/pages.rs"]
mod pages;
#[path = "exposition/processor.rs"]
mod processor;
#[path = "exposition/service_calls.rs"]
mod service_calls;
#[path = "exposition/settings.rs"]
mod settings;
#[path = "exposition/system.rs"]
mod system;
#[path = "exposition/textfile.rs"]
mod textfile;
#[path = "exposition/world.rs"]
mod world;
