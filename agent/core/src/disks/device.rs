//! A block device as the guest's kernel shows it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::partition::Partition;

/// What a virtio disk shows of its serial: `VIRTIO_BLK_ID_BYTES` of the virtio specification.
pub const VIRTIO_SERIAL_BYTES: usize = 20;
/// The least size of a disk that is formatted, in bytes. Smaller ones are configuration (cloud-init seeds, downward metrics).
pub const LEAST_BYTES: u64 = 64 << 20;

/// Major and minor number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DevNumber {
    /// The driver's.
    pub major: u32,
    /// The device's.
    pub minor: u32,
}

impl fmt::Display for DevNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// By what a device is known to be the same one at two moments of one boot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceId {
    /// The kernel's name, e.g. `vdb`. Names are given anew at each boot.
    pub name: String,
    /// Its number.
    pub number: DevNumber,
    /// `BLKGETDISKSEQ`: the kernel never gives it twice in a boot. None below Linux 5.15.
    pub diskseq: Option<u64>,
    /// Its size in bytes.
    pub size: u64,
    /// Its serial as the guest sees it; none without one. For a partition: that of its disk.
    pub serial: Option<String>,
    /// For a partition: where it lies. None for a whole disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<Partition>,
}

impl DeviceId {
    /// Kernel name of the whole disk: its own name, or that of the disk that a partition is on.
    pub fn disk(&self) -> &str {
        self.partition
            .as_ref()
            .map_or(&self.name, |partition| &partition.disk)
    }

    /// Whether `now` can be this device after it has grown: the same serial, the same partition at the same place,
    /// and not smaller. Kernel names and numbers are not compared, because each boot assigns them anew.
    pub fn may_have_become(&self, now: &Self) -> bool {
        self.place() == now.place() && self.serial == now.serial && self.size <= now.size
    }

    /// Of a partition what stays when it grows: its first byte on the disk, and its PARTUUID.
    pub fn place(&self) -> Option<(u64, Option<&str>)> {
        let partition = self.partition.as_ref()?;
        Some((partition.start, partition.uuid.as_deref()))
    }
}

/// How the disk is attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bus {
    /// virtio-blk.
    Virtio,
    /// SCSI, also virtio-scsi; SATA disks are seen as SCSI.
    Scsi,
    /// NVMe.
    Nvme,
    /// A loop device, in tests alone.
    Loop,
    /// Anything else.
    #[default]
    Other,
}

/// Why a device is in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "at")]
pub enum Use {
    /// Mounted here, in the mount namespace of the first process, or (with that process's id) in another.
    Mounted(String),
    /// It is swap space.
    Swap,
    /// Another device stands on it: device mapper, md, bcache.
    Holder(String),
    /// The kernel knows partitions on it.
    Partition(String),
    /// The kernel uses it without a claim: a loop device stands on it, or it is exported as a target. In words.
    Attached(String),
    /// A process has it open for writing: `name (pid)`.
    Opened(String),
}

/// The UUID of what is on a disk, as it is known before anybody looks at the disk itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "known", content = "uuid")]
pub enum Carried {
    /// Nobody has said yet.
    #[default]
    Unknown,
    /// Nothing that has one.
    Nothing,
    /// This one, of a filesystem, a swap area or a LUKS header.
    Uuid(String),
}

/// A whole disk, or a partition that the settings may name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// By what it is known.
    pub id: DeviceId,
    /// How it is attached.
    pub bus: Bus,
    /// The volume's name, which a SCSI disk without serial carries in VPD page 0x83 as `drive-ua-<name>`.
    pub volume: Option<String>,
    /// Its names in `/dev/disk/by-path`, sorted.
    pub paths: Vec<String>,
    /// The path in `/sys/devices`: sorting by it gives the order of PCI addresses.
    pub syspath: String,
    /// Bytes of its logical blocks.
    pub logical_block: u32,
    /// The kernel does not let it be written.
    pub read_only: bool,
    /// It, or what stands on it, holds the root filesystem, `/boot`, `/usr` or `/var`.
    pub carries_system: bool,
    /// What uses it now.
    pub uses: Vec<Use>,
    /// Which UUID is on it. By this a disk that is asked for by size and order is found again wherever it is.
    #[serde(default)]
    pub carried: Carried,
    /// For a partition: why it cannot be used now whatever the settings say, e.g. that the table on the disk differs
    /// from the kernel's.
    #[serde(default)]
    pub fault: Option<String>,
}

impl Device {
    /// The node that its kernel name stands for.
    pub fn node(&self) -> String {
        format!("/dev/{}", self.id.name)
    }
}
