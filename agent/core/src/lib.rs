//! The agent's decisions, without I/O: parsers, data models and plans.

pub mod dbus;
pub mod disks;
pub mod dns;
pub mod guest;
pub mod identity;
pub mod netlink;
pub mod nic;
pub mod pass;
pub mod pause;
pub mod procfs;
pub mod scrape_filter;
pub mod settings;
pub mod textfile;
pub mod virtio;

/// Version of the agent: the package version, with the suffix `-dev` in a debug build.
pub const VERSION: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), "-dev")
} else {
    env!("CARGO_PKG_VERSION")
};
