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
    /// The network interfaces behind which there is a device, by name; numbers in names count as numbers.
    pub nics: Vec<Nic>,
    /// The disks behind which there is a device, by name; drives for CDs and floppies are none.
    pub disks: Vec<Disk>,
    /// Message-signalled interrupts of all PCI devices.
    pub vectors: Vectors,
    /// Whether it was asked what devices offer, as root: what is not known then, this kernel does not tell.
    pub asked_offered: bool,
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
    /// Those that are kept free of the kernel's own work (`isolcpus=`, `nohz_full=`).
    pub isolated: Vec<u32>,
    /// What the kernel does with second threads of cores (`smt/control`): `on`, `off`, `forceoff`, `notsupported`, `notimplemented`, or a number of threads.
    pub smt: Option<String>,
    /// Whether they give random numbers themselves (RDRAND, RNDR); none where that is not known.
    pub random: Option<bool>,
}

/// MSI vectors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Vectors {
    /// Those in use by PCI device, by address; devices without any are left out.
    pub by_device: Vec<(String, u32)>,
    /// In use in all.
    pub used: u32,
    /// An estimate of how many there can be ([`Vectors::estimate`]); none where it cannot be told.
    pub limit: Option<u32>,
}

/// Vectors that a CPU of x86 has for devices: its 256, without the exceptions' 32, the system's 21 at the top (0xeb to 0xff; 20 before Linux 6.10), the system call's
/// 0x80, the cleanup's 0x20 (before Linux 6.8) and the cascade of the old interrupt controller (`arch/x86/include/asm/irq_vectors.h`,
/// `arch/x86/kernel/apic/vector.c`).
const PER_CPU: u32 = 256 - 32 - 21 - 1 - 1 - 1;
/// Vectors that the lines of ISA may take, in all.
const ISA: u32 = 16;

impl Vectors {
    /// An estimate of how many vectors there can be with that many CPUs at work: on x86 200 for each, less 16 in all for ISA's lines. It is an estimate because other
    /// lines than MSI's take some, too, and because an interrupt that the kernel manages (of a disk's queue) keeps one on every CPU that it may go to. None
    /// elsewhere: Arm's and others' interrupt controllers have thousands, by their configuration. `arch` is as [`std::env::consts::ARCH`] has it.
    pub fn estimate(arch: &str, online: usize) -> Option<u32> {
        let cpus = u32::try_from(online).ok().filter(|cpus| *cpus > 0)?;
        let all = cpus.saturating_mul(PER_CPU).saturating_sub(ISA);
        matches!(arch, "x86" | "x86_64").then_some(all)
    }

    /// How many more there can be.
    pub fn left(&self) -> Option<u32> {
        self.limit.map(|limit| limit.saturating_sub(self.used))
    }
}

impl Machine {
    /// The virtio device of that name.
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_estimated_on_x86_alone() {
        assert_eq!(Vectors::estimate("x86_64", 1), Some(184));
        assert_eq!(Vectors::estimate("x86_64", 4), Some(784));
        assert_eq!(Vectors::estimate("x86_64", 0), None);
        assert_eq!(Vectors::estimate("aarch64", 4), None);
        assert!(Vectors::estimate("x86", usize::MAX).is_none());
        let mut vectors = Vectors {
            used: 190,
            limit: Some(184),
            ..Vectors::default()
        };
        assert_eq!(vectors.left(), Some(0));
        vectors.limit = None;
        assert_eq!(vectors.left(), None);
    }
}
