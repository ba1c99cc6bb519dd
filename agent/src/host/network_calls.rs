//! What the collectors of the network ask the kernel by netlink and ioctl and not by a file (room: `agent/src/host`).

use super::Kernel;

/// Asks the kernel about the network. Each call has an answer of its own for trees of files, where nobody can be asked.
pub trait NetworkCalls: Send + Sync {}

impl NetworkCalls for Kernel {}
