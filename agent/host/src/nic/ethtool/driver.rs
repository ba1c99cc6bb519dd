//! A driver's description of itself and its link, and its counters.

use nix::errno::Errno;

use super::{Drivers, bytes, command_of, number, supported, text};

/// `ETHTOOL_GSET`: the first 32 bits of `enum ethtool_link_mode_bit_indices`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkModes {
    pub supported: u32,
    /// Modes that it advertises to the link partner.
    pub advertised: u32,
    /// True if it negotiates its mode with the link partner.
    pub autonegotiate: bool,
}

/// `ETHTOOL_GDRVINFO`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Driver {
    pub name: String,
    pub version: String,
    pub firmware: String,
    /// Bus address of the device, e.g. `0000:01:00.0`.
    pub bus: String,
    /// Version of the expansion ROM.
    pub rom: String,
    pub counters: u32,
}

impl Drivers {
    /// `ETHTOOL_GSET`.
    ///
    /// # Errors
    /// The device is gone, or the driver does not support the command.
    pub(crate) fn link_modes(&self, device: &str) -> Result<LinkModes, Errno> {
        // struct ethtool_cmd, 44 bytes.
        let mut words = command_of(0x01, 0, 44);
        self.call(device, &mut words)?;
        let bytes = bytes(&words);
        Ok(LinkModes {
            supported: number(&bytes, 4),
            advertised: number(&bytes, 8),
            autonegotiate: bytes[18] != 0,
        })
    }

    /// `ETHTOOL_GDRVINFO`.
    ///
    /// # Errors
    /// The device is gone, or the driver does not support the command.
    pub(crate) fn driver(&self, device: &str) -> Result<Driver, Errno> {
        // struct ethtool_drvinfo, 196 bytes.
        let mut words = command_of(0x03, 0, 196);
        self.call(device, &mut words)?;
        let info = bytes(&words);
        Ok(Driver {
            name: text(&info[4..36]),
            version: text(&info[36..68]),
            firmware: text(&info[68..100]),
            bus: text(&info[100..132]),
            rom: text(&info[132..164]),
            counters: number(&info, 180),
        })
    }

    /// The counters of a driver whose description was read before.
    ///
    /// # Errors
    /// The device is gone, or the kernel refuses.
    pub(crate) fn counters_of(&self, device: &str, driver: &Driver) -> Result<Vec<(String, u64)>, Errno> {
        self.counters(device, driver.counters as usize)
    }

    /// The driver's own counters by name, in its order. Empty if it has none.
    ///
    /// # Errors
    /// The device is gone, or the kernel refuses.
    pub(crate) fn statistics(&self, device: &str) -> Result<Vec<(String, u64)>, Errno> {
        let Some(driver) = supported(self.driver(device))? else {
            return Ok(Vec::new());
        };
        Ok(supported(self.counters_of(device, &driver))?.unwrap_or_default())
    }
}
