//! Trees of `proc` and `sys` with the devices of a guest, as kernels from 5.10 to 6.18 show them,
//! and the drivers that answer for its network interfaces.
//!
//! ```
//! use virtfleet_tests::roots::virtio::{Disk, Kernel, Nic, Other, Tree};
//!
//! let tree = Tree {
//!     kernel: Kernel::V6_12,
//!     cpus: 8,
//!     offline: vec![6, 7],
//!     nics: vec![Nic { queues: 1, possible: 4, ..Nic::default() }, Nic::emulated("e1000e")],
//!     disks: vec![Disk::default(), Disk::scsi(2)],
//!     others: vec![Other::balloon(), Other::rng()],
//!     ..Tree::default()
//! };
//! let folder = tempfile::tempdir()?;
//! let guest = tree.write(folder.path())?;
//! let machine = virtfleet_agent_host::virtio::observe(&guest.roots, &guest.nics, true);
//! assert_eq!(machine.nics.len(), 2);
//! # anyhow::Ok(())
//! ```
//!
//! Devices have the order of the lists, interfaces first: `virtio0` and on, each at a PCI address
//! of its own. Interfaces are `eth0` and on, disks `vda`, `sda` or `nvme0n1` and on. The tree lives
//! as far as queues go: [`FakeNics::set_channels`] changes which `queues/rx-*` and `tx-*` there
//! are, and their `xps_cpus`, as the kernel does. Anything else is for the test to change: all of
//! it are plain files.

mod device;
mod disks;
mod fake_nics;
mod interrupts;
mod kernel;
mod nics;
mod queues;
mod seats;

use std::path::Path;

use anyhow::Result;
use virtfleet_agent_core::virtio::{Features, Kind, features};
use virtfleet_agent_host::Roots;

pub use device::{Lines, Virtio};
pub use disks::{Behind, Disk};
pub use fake_nics::{FakeNic, FakeNics};
pub use kernel::Kernel;
pub use nics::{Card, Nic};
pub use queues::spread;

use self::{interrupts::Interrupts, seats::Seats};
use super::files::{attributes, put};

/// A device that is neither an interface nor a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// Its device type.
    pub kind: Kind,
    /// Its driver; empty if no driver is bound.
    pub driver: &'static str,
    /// Its queues, as named by the driver.
    pub queues: Vec<&'static str>,
    /// Entries below its folder, e.g. `virtio-ports/vport1p1`.
    pub parts: Vec<&'static str>,
    /// Properties of all virtio devices.
    pub virtio: Virtio,
}

impl Other {
    fn new(kind: Kind, driver: &'static str, queues: &[&'static str], bits: &[u32]) -> Self {
        Self {
            kind,
            driver,
            queues: queues.to_vec(),
            parts: Vec::new(),
            virtio: Virtio::with(bits),
        }
    }
    /// A memory balloon.
    pub fn balloon() -> Self {
        use features::balloon::{DEFLATE_ON_OOM, REPORTING, STATS_VQ};
        let queues = ["inflate", "deflate", "stats", "reporting_vq"];
        Self::new(
            Kind::BALLOON,
            "virtio_balloon",
            &queues,
            &[STATS_VQ, DEFLATE_ON_OOM, REPORTING],
        )
    }
    /// A random number generator.
    pub fn rng() -> Self {
        Self::new(Kind::RNG, "virtio_rng", &["input"], &[])
    }
    /// A vsock.
    pub fn vsock() -> Self {
        Self::new(
            Kind::VSOCK,
            "vmw_vsock_virtio_transport",
            &["rx", "tx", "event"],
            &[],
        )
    }
    /// A console with the guest agent's port.
    pub fn console() -> Self {
        let queues = ["input", "output", "control-i", "control-o", "input", "output"];
        Self {
            parts: vec!["virtio-ports/vport0p1"],
            ..Self::new(
                Kind::CONSOLE,
                "virtio_console",
                &queues,
                &[features::console::MULTIPORT],
            )
        }
    }
    /// A shared folder (virtiofs).
    pub fn fs() -> Self {
        Self::new(Kind::FS, "virtiofs", &["hiprio", "requests.0"], &[])
    }
    /// A device without a driver.
    pub fn without_driver(kind: Kind) -> Self {
        let mut other = Self::new(kind, "", &[], &[]);
        other.virtio = Virtio {
            status: 1,
            features: Features(0),
            lines: Lines::None,
            ..other.virtio
        };
        other
    }
}

/// A guest.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Its kernel.
    pub kernel: Kernel,
    /// CPUs that are plugged in, numbered from 0.
    pub cpus: u32,
    /// The offline CPUs among them.
    pub offline: Vec<u32>,
    /// Maximum number of CPUs, including those plugged in; at least `cpus`.
    pub possible: u32,
    /// Its interfaces, beside `lo`.
    pub nics: Vec<Nic>,
    /// Its disks.
    pub disks: Vec<Disk>,
    /// Other devices.
    pub others: Vec<Other>,
}

impl Default for Tree {
    /// Two CPUs and no devices.
    fn default() -> Self {
        Self {
            kernel: Kernel::V6_12,
            cpus: 2,
            offline: Vec::new(),
            possible: 0,
            nics: Vec::new(),
            disks: Vec::new(),
            others: Vec::new(),
        }
    }
}

/// A written tree.
#[derive(Debug)]
pub struct Guest {
    /// Its roots: `proc`, `sys`, `rootfs` and `udev` of its folder.
    pub roots: Roots,
    /// Its interfaces' drivers.
    pub nics: FakeNics,
}

impl Tree {
    /// A guest as KubeVirt creates it: interfaces and disks with a queue for each CPU, and the
    /// usual other devices.
    pub fn usual(cpus: u32, nics: usize) -> Self {
        let nic = Nic {
            queues: cpus,
            possible: cpus,
            ..Nic::default()
        };
        let disk = Disk {
            queues: cpus,
            ..Disk::default()
        };
        Self {
            cpus,
            nics: vec![nic; nics],
            disks: vec![disk.clone(), disk],
            others: vec![Other::balloon(), Other::rng(), Other::vsock(), Other::console()],
            ..Self::default()
        }
    }

    /// The online CPUs.
    pub fn online(&self) -> Vec<u32> {
        (0..self.cpus).filter(|cpu| !self.offline.contains(cpu)).collect()
    }

    /// Writes the tree into a folder, which should be empty.
    pub fn write(&self, dir: &Path) -> Result<Guest> {
        let online = self.online();
        put(
            dir,
            "proc/sys/kernel/osrelease",
            format!("{}\n", self.kernel.release),
        )?;
        let list = |cpus: &[u32]| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let until = |count: u32| list(&(0..count).collect::<Vec<_>>());
        attributes(
            dir,
            "sys/devices/system/cpu",
            &[
                ("online", &list(&online)),
                ("present", &until(self.cpus)),
                ("possible", &until(self.possible.max(self.cpus))),
            ],
        )?;
        let mut seats = Seats::new(dir, self.kernel);
        let mut interrupts = Interrupts::new(self.kernel, online.clone());
        let nics = FakeNics::below(dir, online.clone());
        attributes(
            dir,
            "sys/class/net/lo",
            &[("ifindex", "1"), ("mtu", "65536"), ("flags", "0x9")],
        )?;
        for (number, nic) in (0..).zip(&self.nics) {
            nics::write(nic, number, &mut seats, &mut interrupts, &nics)?;
        }
        let mut names = disks::Names::default();
        for disk in &self.disks {
            disks::write(disk, &mut names, &online, &mut seats, &mut interrupts)?;
        }
        let mut sources = Vec::new();
        for other in &self.others {
            let seat = seats.virtio(other.kind, other.driver, &other.virtio)?;
            interrupts.virtio(&seat, other.virtio.lines, &other.queues);
            for part in &other.parts {
                put(
                    dir,
                    format!("{}/{part}/name", seat.folder),
                    "org.qemu.guest_agent.0\n",
                )?;
            }
            if other.kind == Kind::RNG {
                sources.push(format!("virtio_rng.{}", sources.len()));
            }
        }
        put(
            dir,
            "sys/class/misc/hw_random/rng_available",
            sources.join(" ") + "\n",
        )?;
        interrupts.write(dir)?;
        let roots = Roots {
            rootfs: dir.join("rootfs"),
            procfs: dir.join("proc"),
            sysfs: dir.join("sys"),
            udev_data: dir.join("udev"),
        };
        Ok(Guest { roots, nics })
    }
}
