//! Messages from a reader thread, its order and the bytes that it read.

use std::{path::PathBuf, sync::mpsc::SyncSender};

use virtfleet_agent_core::disks::{DeviceId, Doubt, Region};
use virtfleet_runtime::digest::Sha256;

use super::{held::Held, read_failure::Failure};
use crate::Roots;

/// Summary of the bytes that were read.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    /// Number of bytes read.
    pub(super) read: u64,
    /// Offset of the first byte that is not zero.
    pub(super) first: Option<u64>,
    /// SHA-256 (hex) of offset, length and content of each MiB (or the remainder of one) that is
    /// not all zero.
    pub(super) digest: String,
    /// The first chunk.
    pub(super) head: Vec<u8>,
    /// The last 64 KiB or less.
    pub(super) tail: Vec<u8>,
    /// The first non-zero byte outside of the regions of every proof.
    pub(super) apart: Option<u64>,
    /// What [`Reader::further`] has read.
    pub(super) further: FurtherRead,
}

impl Bytes {
    /// Adds a MiB that was read apart from the regions: the digest covers both.
    pub(super) fn and_apart(&mut self, found: &Self) {
        let mut digest = Sha256::default();
        digest.update(self.digest.as_bytes());
        digest.update(found.digest.as_bytes());
        self.digest = digest.hex();
        self.first = self.first.into_iter().chain(found.first).min();
        self.apart = found.first;
    }
}

/// Parameters of the reader thread.
pub(super) struct Order {
    pub(super) path: PathBuf,
    pub(super) id: DeviceId,
    /// Root of sysfs.
    pub(super) roots: Roots,
    /// If false, the device is only locked.
    pub(super) exclusive: bool,
}

pub(super) enum Message {
    Locked,
    Opened,
    Read(u64),
    Done(Box<(Held, Bytes)>),
    Failed(Doubt),
}

pub(super) fn send(sender: &SyncSender<Message>, message: Message) -> Result<(), Failure> {
    sender.send(message).map_err(|_| Failure::CallerGone)
}

/// Result of a read beyond the regions.
#[derive(Debug, Default)]
pub(super) struct FurtherRead {
    /// All regions read so far.
    pub(super) regions: Vec<Region>,
    /// The first byte that is not zero; reading stopped there.
    pub(super) first: Option<u64>,
}
