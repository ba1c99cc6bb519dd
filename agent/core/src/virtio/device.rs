//! A virtio device with its queues and interrupts.

use serde::{Deserialize, Serialize};

use super::Features;

/// A virtio device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// Its name, e.g. `virtio2`.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The driver that is bound to it, e.g. `virtio_net`.
    pub driver: Option<String>,
    /// What it is attached to.
    pub bus: Bus,
    /// Its address there, e.g. `0000:00:03.0`.
    pub address: String,
    /// The status byte (specification, 2.1); none when it could not be read.
    pub status: Option<u32>,
    /// The features that device and driver agreed on.
    pub negotiated: Features,
    /// The features that the device offers: from debugfs, which only root sees, of kernels that have it (`CONFIG_VIRTIO_DEBUG`).
    pub offered: Option<Features>,
    /// Its queues, as far as interrupts or other places tell of them.
    pub queues: Vec<Queue>,
    /// How its queues get interrupts.
    pub sharing: Sharing,
    /// Its interrupts.
    pub vectors: Vec<Vector>,
    /// What the guest sees of it: interfaces (`eth0`), disks (`vda`), ports (`vport1p1`), hardware random sources.
    pub parts: Vec<String>,
}

/// The type of a device: its number in the specification, 5.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Kind(pub u32);

/// What a device is attached to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bus {
    /// PCI.
    Pci,
    /// Memory-mapped.
    Mmio,
    /// Channel I/O of s390.
    Ccw,
    /// Anything else, vDPA among it.
    #[default]
    Other,
}

/// A queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Queue {
    /// What it is for.
    pub role: Role,
    /// Its number among those of its role, from 0.
    pub index: u32,
    /// The interrupt that serves it, alone or with others.
    pub irq: Option<u32>,
}

/// What a queue is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Receives (network, vsock, console, entropy).
    Input,
    /// Sends.
    Output,
    /// Requests of a disk or a SCSI controller.
    Request,
    /// Commands to the device.
    Control,
    /// Events from the device.
    Event,
    /// Another, by the driver's name for it, e.g. `inflate`.
    Other(String),
    /// Nobody said.
    #[default]
    Unknown,
}

/// How the queues of a device get interrupts (`drivers/virtio/virtio_pci_common.c`, `vp_find_vqs`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// One vector for each queue.
    Own,
    /// One vector for all queues (`virtioN-virtqueues`), because there were not enough.
    Shared,
    /// One line for everything, as PCI had before MSI.
    Intx,
    /// Not to be seen, or no interrupts yet.
    #[default]
    Unknown,
}

/// An interrupt of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Vector {
    /// Its number.
    pub irq: u32,
    /// Its handler, e.g. `virtio2-input.0`.
    pub name: String,
    /// The CPUs to which it may go.
    pub affinity: Vec<u32>,
    /// The CPUs to which it goes; empty where the kernel does not say.
    pub effective: Vec<u32>,
    /// How often it came, by CPU; CPUs to which it never came are left out.
    pub landed: Vec<(u32, u64)>,
}

impl Vector {
    /// How often it came in all.
    pub fn count(&self) -> u64 {
        self.landed.iter().fold(0, |sum, one| sum.saturating_add(one.1))
    }
}
