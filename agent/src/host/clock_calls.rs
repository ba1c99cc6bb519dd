//! What the collectors ask the kernel about its clock (room: `agent/src/host`).

use super::Kernel;

/// Asks the kernel about its clock.
pub trait ClockCalls: Send + Sync {}

impl ClockCalls for Kernel {}
