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
pub mod settings;
pub mod textfile;
pub mod virtio;
