//! Network interfaces: addresses, link state, driver queues (ethtool, netlink).

pub(crate) mod addresses;
pub(crate) mod ethtool;
pub(crate) mod link;
pub(crate) mod network_calls;
pub(crate) mod nic_calls;
pub(crate) mod ports;
