//! Block devices of the guest.

pub use super::dev_number::DevNumber;

use serde::{Deserialize, Serialize};

use super::partition::Partition;

/// Number of bytes of its serial that a virtio disk shows: `VIRTIO_BLK_ID_BYTES` of the virtio
/// specification.
pub const VIRTIO_SERIAL_BYTES: usize = 20;
/// Minimum size of a disk that is formatted, in bytes. Smaller ones contain configuration
/// (cloud-init seeds, downward metrics).
pub const MIN_DISK_BYTES: u64 = 64 << 20;

/// Identity of a device within one boot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceId {
    /// Kernel name, e.g. `vdb`. It can change at each boot.
    pub name: String,
    pub number: DevNumber,
    /// `BLKGETDISKSEQ`, unique within a boot. `None` below Linux 5.15.
    pub diskseq: Option<u64>,
    /// Its size in bytes.
    pub size: u64,
    /// Serial as the guest sees it; `None` without one. For a partition: the serial of its disk.
    pub serial: Option<String>,
    /// Position of a partition. `None` for a whole disk.
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

    /// Whether `now` can be this device after it has grown: same serial, same partition at the same
    /// position, not smaller. Kernel names and numbers are ignored, because each boot assigns them
    /// again.
    pub fn may_have_become(&self, now: &Self) -> bool {
        self.place() == now.place() && self.serial == now.serial && self.size <= now.size
    }

    /// Identity of a partition that growing does not change: its first byte on the disk, and its
    /// PARTUUID.
    pub fn place(&self) -> Option<(u64, Option<&str>)> {
        let partition = self.partition.as_ref()?;
        Some((partition.start, partition.uuid.as_deref()))
    }
}

/// Start of [`Use::Holder`] of a device of a mounted btrfs; the UUID of the filesystem follows.
pub const BTRFS_HOLDER: &str = "btrfs ";

/// How the disk is attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bus {
    /// virtio-blk.
    Virtio,
    /// SCSI, including virtio-scsi; SATA disks appear as SCSI.
    Scsi,
    /// NVMe.
    Nvme,
    /// A loop device; only in tests.
    Loop,
    /// Anything else.
    #[default]
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "at")]
pub enum Use {
    /// Mounted at this path, in the mount namespace of the first process, or of the named process.
    Mounted(String),
    /// Active swap space.
    Swap,
    /// Another device uses it: device mapper, md, bcache.
    Holder(String),
    /// The kernel has partitions on it.
    Partition(String),
    /// The kernel uses it without a claim, e.g. as loop device or exported target; a description.
    Attached(String),
    /// A process has it open for writing: `name (pid)`.
    Opened(String),
}

/// UUID of the content of a disk according to udev, before the agent probes the disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "known", content = "uuid")]
pub enum Carried {
    /// Unknown: udev has not reported yet.
    #[default]
    Unknown,
    /// Nothing with a UUID.
    Nothing,
    /// UUID of a filesystem, a swap area or a LUKS header.
    Uuid(String),
}

/// Whole disk, or partition that the settings may name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    pub id: DeviceId,
    /// How it is attached.
    pub bus: Bus,
    /// Name of the volume; a SCSI disk without serial has it in VPD page 0x83 as `drive-ua-<name>`.
    pub volume: Option<String>,
    /// Names in `/dev/disk/by-path`, sorted.
    pub paths: Vec<String>,
    /// Path in `/sys/devices`; sorting by it yields the order of PCI addresses.
    pub syspath: String,
    /// Logical block size in bytes.
    pub logical_block: u32,
    /// Whether the kernel marks it read-only.
    pub read_only: bool,
    /// Whether it or a device above it has the root filesystem, `/boot`, `/usr` or `/var`.
    pub carries_system: bool,
    pub uses: Vec<Use>,
    /// UUID on the device. It identifies a disk that was declared by size and order.
    #[serde(default)]
    pub carried: Carried,
    /// For a partition: why it cannot be used with any settings, e.g. because the table on the disk
    /// differs from the kernel's.
    #[serde(default)]
    pub fault: Option<String>,
    /// Whether it came later than the VM's first boot, so that only its serial, its volume's name
    /// or a partition selects it ([`super::known`]).
    #[serde(default)]
    pub came_later: bool,
}

impl Device {
    /// Device node, e.g. `/dev/vdb`.
    pub fn node(&self) -> String {
        format!("/dev/{}", self.id.name)
    }
}
