//! Device numbers.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Major and minor number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DevNumber {
    /// Major number: the driver.
    pub major: u32,
    /// Minor number: one device of the driver.
    pub minor: u32,
}

impl fmt::Display for DevNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}
