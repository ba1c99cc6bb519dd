//! What a driver says of itself and of its link, and its own counters.

use nix::errno::Errno;

use super::{Drivers, bytes, command_of, number, supported, text};

/// `ETHTOOL_GSET`: bits of `enum ethtool_link_mode_bit_indices`, the first 32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkModes {
    /// What it can do.
    pub supported: u32,
    /// What it offers to the other side.
    pub advertised: u32,
    /// Whether it finds its mode with the other side.
    pub autonegotiate: bool,
}

/// `ETHTOOL_GDRVINFO`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Driver {
    /// The driver's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The firmware's version.
    pub firmware: String,
    /// Where the device is, e.g. `0000:01:00.0`.
    pub bus: String,
    /// The version of the ROM on the card.
    pub rom: String,
    /// How many counters it has.
    pub counters: u32,
}

impl Drivers {
    /// `ETHTOOL_GSET`.
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

    /// The counters of a driver that has said what it has.
    pub(crate) fn counters_of(&self, device: &str, driver: &Driver) -> Result<Vec<(String, u64)>, Errno> {
        self.counters(device, driver.counters as usize)
    }

    /// The driver's own counters by name, in its order; empty when it has none.
    pub(crate) fn statistics(&self, device: &str) -> Result<Vec<(String, u64)>, Errno> {
        let Some(driver) = supported(self.driver(device))? else {
            return Ok(Vec::new());
        };
        Ok(supported(self.counters_of(device, &driver))?.unwrap_or_default())
    }
}
