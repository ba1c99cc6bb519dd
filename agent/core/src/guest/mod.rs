//! What the collectors `guest_*` decide (room: `agent/core`): shares, remounts, newer kernels.

pub mod health;
pub mod kernels;
pub mod remounts;
pub mod steal;
