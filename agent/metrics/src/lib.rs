//! Guest metrics: one collector a file, one registration table a room, one page.
//!
//! ```text
//! Roots ─▶ collector ─▶ parser (agent/core) ─▶ families ─▶ page     one owner thread calls Registry::scrape
//! ```
//! Families, labels, units and meaning are node_exporter's (1.12); `docs/collectors.md` lists them. Adding a collector is
//! one file in a room, one line in the room's `ENTRIES`, and one row in the room's page under `docs/collectors`; a test holds all three together.

#![expect(
    clippy::unnecessary_wraps,
    reason = "constructors have one type, because some of them find settings wrong"
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
mod services;
mod slot;
mod storage;
mod virtio;

pub use collect::{Build, CollectError, Collector, Context, DefaultOn, Entry, Flag, Holds};
pub use registry::Registry;
pub use virtfleet_agent_core::{
    scrape_filter::{Filter, FilterError},
    settings::RegistryError,
};

const ROOMS: &[&[Entry]] = &[
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

/// Every collector, room by room: the order of the page.
pub static COLLECTORS: &[Entry] = &joined();

const COUNT: usize = {
    let (mut count, mut room) = (0, 0);
    while room < ROOMS.len() {
        count += ROOMS[room].len();
        room += 1;
    }
    count
};

const fn joined() -> [Entry; COUNT] {
    let mut all = [ROOMS[0][0]; COUNT];
    let (mut next, mut room) = (0, 0);
    while room < ROOMS.len() {
        let mut at = 0;
        while at < ROOMS[room].len() {
            all[next] = ROOMS[room][at];
            next += 1;
            at += 1;
        }
        room += 1;
    }
    all
}

#[cfg(test)]
mod settings_tests;
