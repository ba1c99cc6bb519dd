//! All that a driver says, at once.

use nix::errno::Errno;

use super::NetworkError;
use crate::nic::ethtool::{Driver, Drivers, LinkModes};

/// What a device's driver says of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ethtool {
    /// None if the driver knows no such thing.
    pub link: Option<LinkModes>,
    /// None if the driver does not say.
    pub driver: Option<Driver>,
    /// Its counters by name, in its order.
    pub counters: Vec<(String, u64)>,
}

/// Asks a device's driver.
///
/// Errors: there is no such device. What a driver does not support is none.
pub(super) fn ask(device: &str) -> Result<Ethtool, NetworkError> {
    let drivers = Drivers::open()?;
    let mut found = Ethtool {
        link: told(drivers.link_modes(device))?,
        driver: told(drivers.driver(device))?,
        counters: Vec::new(),
    };
    if let Some(driver) = &found.driver {
        found.counters = told(drivers.counters_of(device, driver))?.unwrap_or_default();
    }
    Ok(found)
}

fn told<T>(answer: Result<T, Errno>) -> Result<Option<T>, NetworkError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Errno::ENODEV) => Err(NetworkError::from(Errno::ENODEV)),
        // Not supported, not now, not by us: the rest may be.
        Err(_) => Ok(None),
    }
}
