//! Disk of the VM with its hardware queues.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disk {
    /// Name, e.g. `vda`.
    pub name: String,
    pub kind: DiskKind,
    /// Driver, e.g. `virtio_blk`, `ahci`, `nvme`.
    pub driver: String,
    /// Virtio device of the disk, e.g. `virtio1`; for a disk on virtio-scsi, the controller.
    pub device: Option<String>,
    /// Address of the device, e.g. `0000:00:02.0`.
    pub address: String,
    pub bytes: u64,
    pub serial: Option<String>,
    /// Hardware queues in order.
    pub queues: Vec<DiskQueue>,
    /// Scheduler's limit of requests per queue (`queue/nr_requests`).
    pub requests: Option<u32>,
    pub scheduler: Option<String>,
    pub schedulers: Vec<String>,
    pub write_cache: Option<WriteCache>,
    /// Maximum size of a discard in bytes; 0 without discard.
    pub discard: Option<u64>,
    pub read_only: bool,
    /// Reads and writes in flight.
    pub in_flight: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskKind {
    /// virtio-blk.
    VirtioBlk,
    VirtioScsi,
    /// NVMe, passed through or emulated.
    Nvme,
    /// A disk on an emulated controller (SATA, IDE, LSI SCSI).
    Emulated,
    /// Anything else.
    #[default]
    Other,
}

/// Hardware queue (`/sys/block/*/mq/*`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskQueue {
    /// CPUs that use it.
    pub cpus: Vec<u32>,
    /// Depth: maximum number of requests in flight.
    pub depth: Option<u32>,
}

/// Mode of a disk's write cache, as the guest sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteCache {
    /// Write back: writes are cached until a flush.
    Back,
    /// Write through: a completed write is on the disk.
    Through,
}
