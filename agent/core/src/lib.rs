//! The agent's decisions: parsers of what the guest's files and the kernel say, data models, plans
//! and findings. Nothing here opens a file, makes a system call, starts a thread or reads the
//! clock: callers pass bytes and times, and get values.

pub mod dbus;
pub mod disks;
pub mod dns;
pub mod enrolment;
pub mod guest;
pub mod identity;
pub mod netlink;
pub mod nic;
pub mod pass;
pub mod pause;
pub mod procfs;
pub mod push;
pub mod scrape_filter;
pub mod settings;
pub mod textfile;
pub mod virtio;
#[cfg(test)]
mod word_tests;

/// Version of the agent: the package version, with the suffix `-dev` in a debug build.
pub const VERSION: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), "-dev")
} else {
    env!("CARGO_PKG_VERSION")
};
