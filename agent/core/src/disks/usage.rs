//! Usage of a filesystem.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Bytes, or inodes.
    pub used: u64,
    /// Bytes or inodes that unprivileged users may still use.
    pub available: u64,
}

impl Usage {
    /// Capacity as df(1) computes it: without the part reserved for root.
    pub fn full(&self) -> u64 {
        self.used.saturating_add(self.available)
    }

    /// Usage in percent, 0 to 100; 0 if the capacity is 0.
    pub fn percent(&self) -> f64 {
        match self.full() {
            0 => 0.0,
            full => self.used as f64 * 100.0 / full as f64,
        }
    }
}
