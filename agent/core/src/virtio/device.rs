//! Virtio device with its queues and interrupts.

pub use super::kind::Kind;

use serde::{Deserialize, Serialize};

use super::Features;

/// Bits of the status byte (specification, 2.1; `include/uapi/linux/virtio_config.h`).
pub mod status {
    /// The guest has seen the device.
    pub const ACKNOWLEDGE: u32 = 1;
    /// The guest has a driver for it.
    pub const DRIVER: u32 = 2;
    /// The driver is ready.
    pub const DRIVER_OK: u32 = 4;
    /// Device and driver have negotiated the features.
    pub const FEATURES_OK: u32 = 8;
    /// The device had an error that requires a reset.
    pub const DEVICE_NEEDS_RESET: u32 = 64;
    /// The guest has given up the device.
    pub const FAILED: u32 = 128;
    /// Names of the bits.
    pub const NAMES: [(u32, &str); 6] = [
        (ACKNOWLEDGE, "ACKNOWLEDGE"),
        (DRIVER, "DRIVER"),
        (DRIVER_OK, "DRIVER_OK"),
        (FEATURES_OK, "FEATURES_OK"),
        (DEVICE_NEEDS_RESET, "DEVICE_NEEDS_RESET"),
        (FAILED, "FAILED"),
    ];

    /// Names of the set bits, ascending; a bit without name is printed like `0x10`.
    pub fn names(status: u32) -> Vec<String> {
        let set = (0..u32::BITS).map(|bit| 1 << bit).filter(|bit| status & bit != 0);
        set.map(|bit: u32| {
            let known = NAMES.iter().find(|one| one.0 == bit);
            known.map_or_else(|| format!("{bit:#x}"), |one| one.1.to_owned())
        })
        .collect()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// Name, e.g. `virtio2`.
    pub name: String,
    pub kind: Kind,
    /// Bound driver, e.g. `virtio_net`.
    pub driver: Option<String>,
    pub bus: Bus,
    /// Address on the bus, e.g. `0000:00:03.0`.
    pub address: String,
    /// Status byte (specification, 2.1); `None` if unreadable.
    pub status: Option<u32>,
    pub negotiated: Features,
    /// Features offered by the device, from debugfs: only for root, and only with
    /// `CONFIG_VIRTIO_DEBUG`.
    pub offered: Option<Features>,
    /// Queues, as far as interrupts or other sources show them.
    pub queues: Vec<Queue>,
    /// Assignment of interrupts to queues.
    pub sharing: Sharing,
    pub vectors: Vec<Vector>,
    /// Guest devices: interfaces (`eth0`), disks (`vda`), ports (`vport1p1`), hardware random
    /// sources.
    pub parts: Vec<String>,
}

impl Device {
    /// Whether the device requires a reset.
    pub fn needs_reset(&self) -> bool {
        self.status
            .is_some_and(|now| now & status::DEVICE_NEEDS_RESET != 0)
    }
    /// Whether the guest has given up the device.
    pub fn failed(&self) -> bool {
        self.status.is_some_and(|now| now & status::FAILED != 0)
    }
    /// Queues of one role, in order.
    pub fn queues_of(&self, role: &Role) -> impl Iterator<Item = &Queue> {
        self.queues.iter().filter(move |queue| queue.role == *role)
    }
    /// Interrupt with this number.
    pub fn vector(&self, irq: u32) -> Option<&Vector> {
        self.vectors.iter().find(|vector| vector.irq == irq)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bus {
    Pci,
    /// Memory-mapped.
    Mmio,
    /// Channel I/O of s390.
    Ccw,
    /// Another bus, including vDPA.
    #[default]
    Other,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Queue {
    pub role: Role,
    /// Number among the queues of its role, from 0.
    pub index: u32,
    /// Interrupt that serves it, exclusively or shared.
    pub irq: Option<u32>,
}

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
    /// Another role: the driver's name without its number, e.g. `inflate`.
    Other(String),
    #[default]
    Unknown,
}

/// Assignment of interrupts to the queues of a device (`drivers/virtio/virtio_pci_common.c`,
/// `vp_find_vqs`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// One vector for each queue.
    Own,
    /// One vector for all queues (`virtioN-virtqueues`), because there were not enough.
    Shared,
    /// One line for everything, as PCI had before MSI. Memory-mapped devices ([`Bus::Mmio`]) have
    /// nothing else.
    Intx,
    /// Not to be seen, or no interrupts yet.
    #[default]
    Unknown,
}

/// An interrupt of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Vector {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_status_have_names() {
        assert_eq!(
            (Kind::NET.to_string(), Kind::FS.name()),
            ("net".to_owned(), Some("fs"))
        );
        assert_eq!(Kind(0).to_string(), "type 0");
        assert!(super::super::kind::KINDS.is_sorted_by_key(|one| one.0));
        assert_eq!(
            status::names(15),
            ["ACKNOWLEDGE", "DRIVER", "DRIVER_OK", "FEATURES_OK"]
        );
        assert_eq!(status::names(0x90), ["0x10", "FAILED"]);
        assert!(status::names(0).is_empty());
        assert_eq!(status::names(u32::MAX).len(), 32);
        let mut device = Device {
            status: Some(0x4f),
            ..Device::default()
        };
        assert!(device.needs_reset() && !device.failed());
        device.status = Some(status::FAILED);
        assert!(device.failed() && !device.needs_reset());
        device.status = None;
        assert!(!device.failed() && !device.needs_reset());
    }
}
