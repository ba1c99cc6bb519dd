//! Allocates sysfs locations of devices: PCI, and virtio above it.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use virtfleet_agent_core::virtio::Kind;

use super::{super::files::attributes, device::Virtio, kernel::Kernel};

/// Allocates locations of devices.
pub(super) struct Seats {
    pub(super) dir: PathBuf,
    pub(super) kernel: Kernel,
    /// Number of PCI devices so far.
    taken: u32,
    /// Number of virtio devices so far.
    devices: u32,
}

/// Location of a device.
pub(super) struct Seat {
    /// Its PCI address.
    pub(super) address: String,
    /// Its folder below the tree's, e.g. `sys/devices/pci0000:00/0000:00:01.0/virtio0`.
    pub(super) folder: String,
    /// Its name, e.g. `virtio0`; for other devices that of the PCI device.
    pub(super) name: String,
}

impl Seats {
    pub(super) fn new(dir: &Path, kernel: Kernel) -> Self {
        Self {
            dir: dir.to_owned(),
            kernel,
            taken: 0,
            devices: 0,
        }
    }

    /// Adds a PCI device with that driver.
    pub(super) fn pci(&mut self, driver: &str) -> Result<Seat> {
        self.taken += 1;
        let address = format!("0000:{:02x}:{:02x}.0", self.taken / 32, self.taken % 32);
        let folder = format!("sys/devices/pci0000:00/{address}");
        attributes(&self.dir, &folder, &[("vendor", "0x1af4"), ("enable", "1")])?;
        self.link(
            &format!("{folder}/driver"),
            &format!("../../../bus/pci/drivers/{driver}"),
        )?;
        self.link(&format!("{folder}/subsystem"), "../../../bus/pci")?;
        let target = format!("../../../devices/pci0000:00/{address}");
        self.link(&format!("sys/bus/pci/devices/{address}"), &target)?;
        Ok(Seat {
            name: address.clone(),
            address,
            folder,
        })
    }

    /// Adds a virtio device over PCI.
    pub(super) fn virtio(&mut self, kind: Kind, driver: &str, virtio: &Virtio) -> Result<Seat> {
        let below = self.pci("virtio-pci")?;
        let name = format!("virtio{}", self.devices);
        self.devices += 1;
        let folder = format!("{}/{name}", below.folder);
        attributes(
            &self.dir,
            &folder,
            &[
                ("device", &format!("{:#06x}", kind.0)),
                ("vendor", "0x1af4"),
                ("status", &format!("{:#010x}", virtio.status)),
                ("features", &virtio.features.to_sysfs(self.kernel.features)),
                ("modalias", &format!("virtio:d{:08X}v00001AF4", kind.0)),
            ],
        )?;
        if !driver.is_empty() {
            self.link(
                &format!("{folder}/driver"),
                &format!("../../../../bus/virtio/drivers/{driver}"),
            )?;
        }
        self.link(&format!("{folder}/subsystem"), "../../../../bus/virtio")?;
        let target = format!("../../../{}", folder.trim_start_matches("sys/"));
        self.link(&format!("sys/bus/virtio/devices/{name}"), &target)?;
        if self.kernel.debugfs {
            let bits = virtio.features.0 | virtio.offered.0;
            let all = virtfleet_agent_core::virtio::Features(bits);
            let lines: Vec<String> = all.bits().map(|bit| bit.to_string()).collect();
            let folder = format!("sys/kernel/debug/virtio/{name}");
            attributes(&self.dir, &folder, &[("device_features", &lines.join("\n"))])?;
        }
        Ok(Seat {
            address: below.address,
            folder,
            name,
        })
    }

    pub(super) fn link(&self, place: &str, target: &str) -> Result<()> {
        let place = self.dir.join(place);
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        }
        symlink(target, &place).with_context(|| format!("link {}", place.display()))
    }
}
