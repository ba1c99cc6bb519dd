//! What decides in the agent, and touches nothing: parsers, models, plans.

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

/// The agent's version: the package's, with `-dev` in a debug build, so that it is not taken for a release.
pub const VERSION: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), "-dev")
} else {
    env!("CARGO_PKG_VERSION")
};
