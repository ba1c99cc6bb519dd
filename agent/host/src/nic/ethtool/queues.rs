//! How many queues an interface has, how long they are, and when they interrupt.

use nix::errno::Errno;
use virtfleet_agent_core::virtio::{Channels, Coalescing, Rings};

use super::{Command, Drivers, supported};

// struct ethtool_channels: command, most rx, tx, other and combined, then what there is of each.
const GET_CHANNELS: Command<9> = Command(0x3c);
const SET_CHANNELS: Command<9> = Command(0x3d);
const COMBINED_MOST: usize = 4;
const COMBINED: usize = 8;

// struct ethtool_ringparam: command, most rx, mini, jumbo and tx, then what there is of each.
const GET_RINGS: Command<9> = Command(0x10);
const SET_RINGS: Command<9> = Command(0x11);
const RX_MOST: usize = 1;
const TX_MOST: usize = 4;
const RX: usize = 5;
const TX: usize = 8;

// struct ethtool_coalesce.
const GET_COALESCING: Command<23> = Command(0x0e);

impl Drivers {
    /// `ETHTOOL_GCHANNELS`. None, too, of an interface whose queues go one way only.
    pub(crate) fn channels(&self, device: &str) -> Result<Option<Channels>, Errno> {
        let told = supported(self.numbers(device, GET_CHANNELS, [0; 9]))?;
        let pairs = told.map(|told| Channels {
            current: told[COMBINED],
            possible: told[COMBINED_MOST],
        });
        Ok(pairs.filter(|pairs| pairs.possible > 0))
    }

    /// `ETHTOOL_SCHANNELS`: queues that only receive, only send or do something else stay as they are.
    pub(crate) fn set_channels(&self, device: &str, combined: u32) -> Result<(), Errno> {
        let mut told = self.numbers(device, GET_CHANNELS, [0; 9])?;
        told[COMBINED] = combined;
        self.numbers(device, SET_CHANNELS, told).map(drop)
    }

    /// `ETHTOOL_GRINGPARAM`.
    pub(crate) fn rings(&self, device: &str) -> Result<Option<Rings>, Errno> {
        let told = supported(self.numbers(device, GET_RINGS, [0; 9]))?;
        Ok(told.map(|told| Rings {
            rx: told[RX],
            tx: told[TX],
            rx_possible: told[RX_MOST],
            tx_possible: told[TX_MOST],
        }))
    }

    /// `ETHTOOL_SRINGPARAM`: rings of small and of large frames stay as they are.
    pub(crate) fn set_rings(&self, device: &str, rx: u32, tx: u32) -> Result<(), Errno> {
        let mut told = self.numbers(device, GET_RINGS, [0; 9])?;
        (told[RX], told[TX]) = (rx, tx);
        self.numbers(device, SET_RINGS, told).map(drop)
    }

    /// `ETHTOOL_GCOALESCE`.
    pub(crate) fn coalescing(&self, device: &str) -> Result<Option<Coalescing>, Errno> {
        let told = supported(self.numbers(device, GET_COALESCING, [0; 23]))?;
        Ok(told.map(|told| Coalescing {
            rx_usecs: told[1],
            rx_frames: told[2],
            tx_usecs: told[5],
            tx_frames: told[6],
            rx_adaptive: told[10] != 0,
        }))
    }
}
