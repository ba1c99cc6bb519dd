//! Queues of network interfaces: what root's last pass has left behind.

mod state;

pub use state::{NIC_FILE, ReadNicError, read_nic};
