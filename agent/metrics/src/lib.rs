//! Guest metrics: one file per collector, one registration table per group, one page. Reads the
//! guest through `virtfleet-agent-host` and root's results through `virtfleet-agent-state`; it
//! changes nothing.
//!
//! ```text
//! Roots ─▶ collector ─▶ parser (agent/core) ─▶ families ─▶ page
//! ```
//! Families, labels, units and meaning are those of node_exporter 1.12; `docs/collectors.md` lists
//! them. To add a collector, add a file in a group, an entry in the group's `ENTRIES`, and a row in
//! the group's page under `docs/collectors`; a test verifies that all three agree.

#![expect(
    clippy::unnecessary_wraps,
    reason = "all constructors have the same type, and some of them reject settings"
)]

mod attributes;
mod collect;
mod declared;
mod guest;
mod hardware;
mod memory;
mod metric_name;
mod mounts;
mod network;
mod node;
mod processor;
mod registry;
mod runner;
mod series_limit;
mod services;
mod slot;
mod storage;
mod virtio;

use collect::Skipped;
pub use collect::{Build, CollectError, Collector, Context, DefaultOn, Entry, Flag, SettingType};
pub use registry::Registry;
pub use virtfleet_agent_core::{
    scrape_filter::{Filter, FilterError},
    settings::RegistryError,
};

const GROUPS: &[&[Entry]] = &[
    processor::ENTRIES,
    memory::ENTRIES,
    storage::ENTRIES,
    network::ENTRIES,
    node::ENTRIES,
    hardware::ENTRIES,
    virtio::ENTRIES,
    services::ENTRIES,
    guest::ENTRIES,
    declared::ENTRIES,
    node::LAST,
];

/// All collectors, group by group, in the order of the page.
pub static COLLECTORS: &[Entry] = &joined();

const COUNT: usize = {
    let (mut count, mut group) = (0, 0);
    while group < GROUPS.len() {
        count += GROUPS[group].len();
        group += 1;
    }
    count
};

const fn joined() -> [Entry; COUNT] {
    let mut all = [GROUPS[0][0]; COUNT];
    let (mut next, mut group) = (0, 0);
    while group < GROUPS.len() {
        let mut at = 0;
        while at < GROUPS[group].len() {
            all[next] = GROUPS[group][at];
            next += 1;
            at += 1;
        }
        group += 1;
    }
    all
}

#[cfg(test)]
mod settings_tests;
