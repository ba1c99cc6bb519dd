//! Network interface of the VM with its queues.

use serde::{Deserialize, Serialize};

/// Network interface with a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Nic {
    /// Name, e.g. `eth0`.
    pub name: String,
    pub index: u32,
    pub mac: String,
    pub kind: NicKind,
    /// Driver, e.g. `virtio_net`, `e1000e`, `mlx5_core`.
    pub driver: String,
    /// Virtio device, e.g. `virtio2`.
    pub device: Option<String>,
    /// Address of the device, e.g. `0000:00:03.0`.
    pub address: String,
    /// Whether it is administratively up (`IFF_UP`).
    pub up: bool,
    /// Whether it has a carrier; `None` while it is down.
    pub carrier: Option<bool>,
    /// Operational state (`operstate`): `up`, `down`, `dormant`, `unknown`, …
    pub operstate: String,
    /// MTU in bytes.
    pub mtu: u32,
    pub dhcp_mtu: Option<u32>,
    /// Current and maximum number of queue pairs; `None` if the driver does not report them.
    pub channels: Option<Channels>,
    pub rings: Option<Rings>,
    pub coalescing: Option<Coalescing>,
    /// Queues in use: receive queues first, in order.
    pub queues: Vec<NicQueue>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicKind {
    Virtio,
    /// A passed-through function of real hardware (SR-IOV).
    Function,
    /// An emulated device (e1000, rtl8139, vmxnet3).
    Emulated,
    /// Anything else.
    #[default]
    Other,
}

/// Combined channels (`ETHTOOL_GCHANNELS`): pairs of a receive and a transmit queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Channels {
    pub current: u32,
    /// Maximum number.
    pub possible: u32,
}

/// Ring sizes (`ETHTOOL_GRINGPARAM`) in descriptors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rings {
    /// Entries in each receive ring.
    pub rx: u32,
    /// Entries in each transmit ring.
    pub tx: u32,
    /// Maximum of `rx`.
    pub rx_possible: u32,
    /// Maximum of `tx`.
    pub tx_possible: u32,
}

/// Interrupt coalescing (`ETHTOOL_GCOALESCE`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Coalescing {
    /// Delay after a received packet in µs.
    pub rx_usecs: u32,
    /// Number of received packets.
    pub rx_frames: u32,
    /// Delay after a sent packet in µs.
    pub tx_usecs: u32,
    /// Number of sent packets.
    pub tx_frames: u32,
    /// Whether the driver adapts receive coalescing to the load.
    pub rx_adaptive: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NicQueue {
    /// Whether it receives or sends.
    pub direction: Direction,
    /// Number, from 0.
    pub index: u32,
    /// CPUs whose packets it sends (XPS), or to which its received packets are steered (RPS).
    /// `None` if the kernel does not support it.
    pub cpus: Option<Vec<u32>>,
    /// Its packets, bytes, drops and other events, as far as the driver counts them.
    pub counters: Counters,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Into the guest.
    #[default]
    Receive,
    /// Out of the guest.
    Transmit,
}

/// Counters of a queue; `None` if the kernel does not have them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counters {
    pub packets: Option<u64>,
    pub bytes: Option<u64>,
    pub drops: Option<u64>,
    /// Number of notifications to the hypervisor.
    pub kicks: Option<u64>,
    /// Number of transmit timeouts.
    pub timeouts: Option<u64>,
    /// Number of times that transmission was stopped because the ring was full.
    pub stops: Option<u64>,
    /// Number of times that transmission was resumed.
    pub wakes: Option<u64>,
}
