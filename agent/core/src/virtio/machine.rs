//! All that was seen at once.

use serde::{Deserialize, Serialize};

use super::{Device, Disk, Nic};

/// The guest's devices at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Machine {
    /// The kernel's release, e.g. `6.12.38+deb13-cloud-amd64`.
    pub kernel: String,
    /// The CPUs.
    pub cpus: Cpus,
    /// The virtio devices, by number.
    pub devices: Vec<Device>,
    /// The network interfaces behind which there is a device, by name.
    pub nics: Vec<Nic>,
    /// The disks, by name.
    pub disks: Vec<Disk>,
    /// Message-signalled interrupts of all PCI devices.
    pub vectors: Vectors,
    /// What could not be read; a device that went away while it was read is no such thing.
    pub unread: Vec<Unread>,
}

/// CPUs by number, ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cpus {
    /// Those that work.
    pub online: Vec<u32>,
    /// Those that are plugged in.
    pub present: Vec<u32>,
    /// Those that can be plugged in.
    pub possible: Vec<u32>,
}

/// MSI vectors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Vectors {
    /// Those in use by PCI device, by address; devices without any are left out.
    pub by_device: Vec<(String, u32)>,
    /// In use in all.
    pub used: u32,
    /// An estimate of how many there can be; none where it cannot be told.
    pub limit: Option<u32>,
}

/// Something that could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Unread {
    /// What, by its path or name.
    pub what: String,
    /// Why.
    pub because: String,
}
