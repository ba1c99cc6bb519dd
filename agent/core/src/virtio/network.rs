//! A network interface that stands for a device of the VM, with its queues.

use serde::{Deserialize, Serialize};

/// A network interface behind which there is a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Nic {
    /// Its name, e.g. `eth0`.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Its MAC address.
    pub mac: String,
    /// What is behind it.
    pub kind: NicKind,
    /// Its driver, e.g. `virtio_net`, `e1000e`, `mlx5_core`.
    pub driver: String,
    /// The virtio device behind it, e.g. `virtio2`.
    pub device: Option<String>,
    /// Where the device is, e.g. `0000:00:03.0`.
    pub address: String,
    /// Whether it is set up (`IFF_UP`).
    pub up: bool,
    /// Whether the other side is there; none while it is down.
    pub carrier: Option<bool>,
    /// What the kernel says of its link in one word (`operstate`): `up`, `down`, `dormant`, `unknown`, …
    pub operstate: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// The MTU that DHCP gave.
    pub dhcp_mtu: Option<u32>,
    /// Queue pairs now and at most; none when the driver does not say.
    pub channels: Option<Channels>,
    /// Sizes of the rings.
    pub rings: Option<Rings>,
    /// Interrupt coalescing.
    pub coalescing: Option<Coalescing>,
    /// Its queues that are in use: of `receive` first, in order.
    pub queues: Vec<NicQueue>,
}

/// What is behind an interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicKind {
    /// A virtio device.
    Virtio,
    /// A function of real hardware that is passed through (SR-IOV).
    Function,
    /// A device that the hypervisor emulates (e1000, rtl8139, vmxnet3).
    Emulated,
    /// Anything else.
    #[default]
    Other,
}

/// Combined channels (`ETHTOOL_GCHANNELS`): pairs of a receive and a transmit queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Channels {
    /// In use.
    pub current: u32,
    /// At most.
    pub possible: u32,
}

/// Sizes of the rings (`ETHTOOL_GRINGPARAM`), in descriptors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rings {
    /// Receive.
    pub rx: u32,
    /// Transmit.
    pub tx: u32,
    /// Receive, at most.
    pub rx_possible: u32,
    /// Transmit, at most.
    pub tx_possible: u32,
}

/// Interrupt coalescing (`ETHTOOL_GCOALESCE`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Coalescing {
    /// µs after a received packet.
    pub rx_usecs: u32,
    /// Received packets.
    pub rx_frames: u32,
    /// µs after a sent packet.
    pub tx_usecs: u32,
    /// Sent packets.
    pub tx_frames: u32,
    /// Whether the driver adapts what it receives to the load.
    pub rx_adaptive: bool,
}

/// A queue of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NicQueue {
    /// Which way.
    pub direction: Direction,
    /// Its number, from 0.
    pub index: u32,
    /// The CPUs whose packets it sends (XPS), or to which what it receives is steered (RPS). None where the kernel has no such thing.
    pub cpus: Option<Vec<u32>>,
    /// What went through it.
    pub counters: Counters,
}

/// Which way packets go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Into the guest.
    #[default]
    Receive,
    /// Out of it.
    Transmit,
}

/// Counters of a queue, under one name whatever the kernel calls them; none where it has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counters {
    /// Packets.
    pub packets: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
    /// Packets that were dropped.
    pub drops: Option<u64>,
    /// How often the hypervisor was told that there is work.
    pub kicks: Option<u64>,
    /// How often sending stood still for too long.
    pub timeouts: Option<u64>,
    /// How often the stack was told to wait, because the ring was full; of what is sent.
    pub stops: Option<u64>,
    /// How often it was told to go on; of what is sent.
    pub wakes: Option<u64>,
}
