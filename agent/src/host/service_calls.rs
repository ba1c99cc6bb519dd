//! What the collectors ask systemd and logind, on the system bus (room: `agent/src/host`).

use super::Kernel;

/// Asks systemd and logind.
pub trait ServiceCalls: Send + Sync {}

impl ServiceCalls for Kernel {}
