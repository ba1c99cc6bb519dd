//! What decides in the agent, and touches nothing: parsers, models, plans.

pub mod disks;
pub mod dns;
pub mod identity;
pub mod netlink;
pub mod pass;
pub mod pause;
pub mod procfs;
