//! Number of queues, ring sizes and interrupt coalescing of an interface.

use nix::errno::Errno;
use virtfleet_agent_core::virtio::{Channels, Coalescing, Rings};

use super::{Command, Drivers, supported};

// struct ethtool_channels: command, most rx, tx, other and combined, then what there is of each.
const GET_CHANNELS: Command<9> = Command(0x3c);
const SET_CHANNELS: Command<9> = Command(0x3d);
const COMBINED_MAX: usize = 4;
const COMBINED: usize = 8;

// struct ethtool_ringparam: command, most rx, mini, jumbo and tx, then what there is of each.
const GET_RINGS: Command<9> = Command(0x10);
const SET_RINGS: Command<9> = Command(0x11);
const RX_MAX: usize = 1;
const TX_MAX: usize = 4;
const RX: usize = 5;
const TX: usize = 8;

// struct ethtool_coalesce.
const GET_COALESCING: Command<23> = Command(0x0e);

impl Drivers {
    /// `ETHTOOL_GCHANNELS`. `None` also for an interface without combined queues.
    ///
    /// # Errors
    /// The interface is gone, or the kernel refuses.
    pub(crate) fn channels(&self, device: &str) -> Result<Option<Channels>, Errno> {
        let numbers = supported(self.numbers(device, GET_CHANNELS, [0; 9]))?;
        let pairs = numbers.map(|numbers| Channels {
            current: numbers[COMBINED],
            possible: numbers[COMBINED_MAX],
        });
        Ok(pairs.filter(|pairs| pairs.possible > 0))
    }

    /// `ETHTOOL_SCHANNELS`. Changes only combined queues.
    ///
    /// # Errors
    /// The interface is gone, or the kernel refuses.
    pub(crate) fn set_channels(&self, device: &str, combined: u32) -> Result<(), Errno> {
        let mut numbers = self.numbers(device, GET_CHANNELS, [0; 9])?;
        numbers[COMBINED] = combined;
        self.numbers(device, SET_CHANNELS, numbers).map(drop)
    }

    /// `ETHTOOL_GRINGPARAM`.
    ///
    /// # Errors
    /// The interface is gone, or the kernel refuses.
    pub(crate) fn rings(&self, device: &str) -> Result<Option<Rings>, Errno> {
        let numbers = supported(self.numbers(device, GET_RINGS, [0; 9]))?;
        Ok(numbers.map(|numbers| Rings {
            rx: numbers[RX],
            tx: numbers[TX],
            rx_possible: numbers[RX_MAX],
            tx_possible: numbers[TX_MAX],
        }))
    }

    /// `ETHTOOL_SRINGPARAM`. Changes only the normal rings, not the mini and jumbo rings.
    ///
    /// # Errors
    /// The interface is gone, or the kernel refuses.
    pub(crate) fn set_rings(&self, device: &str, rx: u32, tx: u32) -> Result<(), Errno> {
        let mut numbers = self.numbers(device, GET_RINGS, [0; 9])?;
        (numbers[RX], numbers[TX]) = (rx, tx);
        self.numbers(device, SET_RINGS, numbers).map(drop)
    }

    /// `ETHTOOL_GCOALESCE`.
    ///
    /// # Errors
    /// The interface is gone, or the kernel refuses.
    pub(crate) fn coalescing(&self, device: &str) -> Result<Option<Coalescing>, Errno> {
        let numbers = supported(self.numbers(device, GET_COALESCING, [0; 23]))?;
        Ok(numbers.map(|numbers| Coalescing {
            rx_usecs: numbers[1],
            rx_frames: numbers[2],
            tx_usecs: numbers[5],
            tx_frames: numbers[6],
            rx_adaptive: numbers[10] != 0,
        }))
    }
}
