//! A disk of the VM, with its hardware queues.

use serde::{Deserialize, Serialize};

/// A disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disk {
    /// Its name, e.g. `vda`.
    pub name: String,
    /// What is behind it.
    pub kind: DiskKind,
    /// Its driver, e.g. `virtio_blk`, `ahci`, `nvme`.
    pub driver: String,
    /// The virtio device behind it, e.g. `virtio1`; of a disk on virtio-scsi, the controller.
    pub device: Option<String>,
    /// Where the device is, e.g. `0000:00:02.0`.
    pub address: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its serial.
    pub serial: Option<String>,
    /// Its hardware queues, in order.
    pub queues: Vec<DiskQueue>,
    /// Requests that the scheduler takes for a queue (`queue/nr_requests`).
    pub requests: Option<u32>,
    /// The scheduler in use.
    pub scheduler: Option<String>,
    /// Those that can be had.
    pub schedulers: Vec<String>,
    /// What the write cache does.
    pub write_cache: Option<WriteCache>,
    /// The most that one discard takes, in bytes; 0 where there is none.
    pub discard: Option<u64>,
    /// Whether only reading is possible.
    pub read_only: bool,
    /// Reads and writes that are under way.
    pub in_flight: Option<(u64, u64)>,
}

/// What is behind a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskKind {
    /// virtio-blk.
    VirtioBlk,
    /// A disk on a virtio-scsi controller.
    VirtioScsi,
    /// NVMe, passed through or emulated.
    Nvme,
    /// A disk on an emulated controller (SATA, IDE, LSI SCSI).
    Emulated,
    /// Anything else.
    #[default]
    Other,
}

/// A hardware queue (`/sys/block/*/mq/*`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskQueue {
    /// The CPUs that use it.
    pub cpus: Vec<u32>,
    /// Its depth: requests that can be under way.
    pub depth: Option<u32>,
}

/// What a disk's write cache does, as the guest sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteCache {
    /// Writes are kept until a flush.
    Back,
    /// Every write is on the disk when it is done.
    Through,
}
