//! Snapshot of the machine.

use serde::{Deserialize, Serialize};

use super::{Device, Disk, Nic};

/// Devices of the guest at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Machine {
    /// Kernel release, e.g. `6.12.38+deb13-cloud-amd64`.
    pub kernel: String,
    /// CPUs.
    pub cpus: Cpus,
    /// Virtio devices by number.
    pub devices: Vec<Device>,
    /// Network interfaces with a device, in natural order of their names.
    pub nics: Vec<Nic>,
    /// Disks with a device by name, without CD and floppy drives.
    pub disks: Vec<Disk>,
    /// Message-signalled interrupts of all PCI devices.
    pub vectors: Vectors,
    /// Whether offered features were read as root; those that are unknown then, this kernel does
    /// not report.
    pub asked_offered: bool,
    /// Unreadable items, except devices that were removed meanwhile.
    pub unread: Vec<Unread>,
}

/// CPUs by number, ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cpus {
    /// Online CPUs.
    pub online: Vec<u32>,
    /// Present CPUs.
    pub present: Vec<u32>,
    /// Possible CPUs.
    pub possible: Vec<u32>,
    /// Isolated CPUs (`isolcpus=`, `nohz_full=`).
    pub isolated: Vec<u32>,
    /// State of SMT (`smt/control`): `on`, `off`, `forceoff`, `notsupported`, `notimplemented`, or
    /// a number of threads.
    pub smt: Option<String>,
    /// Whether they have a random number instruction (RDRAND, RNDR); `None` if unknown.
    pub random: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Vectors {
    /// Vectors in use by PCI device, by address; devices without vectors are left out.
    pub by_device: Vec<(String, u32)>,
    /// Total number in use.
    pub used: u32,
    /// Estimated limit ([`Vectors::estimate`]); `None` if unknown.
    pub limit: Option<u32>,
}

/// Number of vectors per x86 CPU that devices can use: 256, without the exceptions' 32, the
/// system's 21 at the top (0xeb to 0xff; 20 before Linux 6.10), the system call's 0x80, the
/// cleanup's 0x20 (before Linux 6.8) and the cascade of the old interrupt controller
/// (`arch/x86/include/asm/irq_vectors.h`, `arch/x86/kernel/apic/vector.c`).
const PER_CPU: u32 = 256 - 32 - 21 - 1 - 1 - 1;
/// Total number of vectors that ISA interrupts may use.
const ISA: u32 = 16;

impl Vectors {
    /// Estimates the limit for a number of online CPUs: on x86 200 per CPU, less 16 in total for
    /// ISA. It is an estimate, because other interrupts than MSI use some, too, and a managed
    /// interrupt (of a disk's queue) reserves one on every CPU in its affinity. `None` elsewhere:
    /// other interrupt controllers such as Arm's have thousands, depending on their configuration.
    /// `arch` is a value of [`std::env::consts::ARCH`].
    pub fn estimate(arch: &str, online: usize) -> Option<u32> {
        let cpus = u32::try_from(online).ok().filter(|cpus| *cpus > 0)?;
        let all = cpus.saturating_mul(PER_CPU).saturating_sub(ISA);
        matches!(arch, "x86" | "x86_64").then_some(all)
    }

    /// Number of free vectors.
    pub fn left(&self) -> Option<u32> {
        self.limit.map(|limit| limit.saturating_sub(self.used))
    }
}

impl Machine {
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }
}

/// Unreadable item.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Unread {
    /// Path or name.
    pub what: String,
    pub because: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_estimated_only_on_x86() {
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
