//! Reads everything that a driver reports.

use nix::errno::Errno;

use super::NetworkError;
use crate::nic::ethtool::{Driver, Drivers, LinkModes};

/// What a device's driver reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ethtool {
    /// `None` if the driver does not support it.
    pub link: Option<LinkModes>,
    /// `None` if the driver does not support it.
    pub driver: Option<Driver>,
    /// The driver's counters by name, in its order.
    pub counters: Vec<(String, u64)>,
}

/// Queries a device's driver. Unsupported commands give `None`.
///
/// # Errors
/// The device does not exist.
pub(super) fn ask(device: &str) -> Result<Ethtool, NetworkError> {
    let drivers = Drivers::open()?;
    let mut found = Ethtool {
        link: optional(drivers.link_modes(device))?,
        driver: optional(drivers.driver(device))?,
        counters: Vec::new(),
    };
    if let Some(driver) = &found.driver {
        found.counters = optional(drivers.counters_of(device, driver))?.unwrap_or_default();
    }
    Ok(found)
}

fn optional<T>(answer: Result<T, Errno>) -> Result<Option<T>, NetworkError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Errno::ENODEV) => Err(NetworkError::from(Errno::ENODEV)),
        // Not supported, temporarily unavailable or not permitted; other commands may work.
        Err(_) => Ok(None),
    }
}
