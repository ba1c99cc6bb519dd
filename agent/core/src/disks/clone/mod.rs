//! Whether a disk is an untouched clone of the OS image that this VM's root disk was cloned from, so that nothing of anybody's is on
//! it. Pure: [`judge`] reads both disks through [`Source`].
//!
//! What must hold, and why it proves that nothing was written since the disk was cloned, is in
//! `docs/decisions/0018-image-clones.md`.

mod checksum;
mod ext4;
mod fat;
mod fingerprint;
mod gpt;
mod judge;
#[cfg(test)]
mod samples;
mod source;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::{device::DeviceId, journal, probe::Doubt, size, wanted::Key, writes::WriteMark};

pub use fingerprint::{BLOCK, Fingerprint, Foreign};
pub use judge::{Sector, judge};
pub use source::{Source, is_zero};

/// Format of [`EraseRecord`].
pub const RECORD_FORMAT: u32 = 1;

/// When the root disk was booted first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FirstBoot {
    /// Seconds since 1970. At or after the true first boot, never before.
    pub at: u64,
    /// The file whose creation says so.
    pub source: String,
}

/// Why one partition of the clone holds nothing of anybody's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedPartition {
    /// Number in the partition table, from 1.
    pub number: usize,
    /// First byte on the disk.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Why it is untouched, in one sentence.
    pub because: String,
}

/// A proof that a disk is an untouched clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloneProof {
    /// Kernel name of the root disk that it was compared with.
    pub root: String,
    /// Bytes of the image: up to the end of its backup partition table.
    pub image_bytes: u64,
    /// GUID of the disk.
    pub disk_guid: String,
    /// Its partitions, by number.
    pub partitions: Vec<CheckedPartition>,
    /// When the root disk was booted first.
    pub first_boot: FirstBoot,
    /// SHA-256, in hex, of both partition tables and of each ext4 superblock, with the sizes: two proofs that agree in it are of the
    /// same clone.
    pub digest: String,
    /// Bytes behind the image that were read and are zero.
    pub behind_read: u64,
    /// Bytes behind the image.
    pub behind: u64,
    /// The longest run of bytes behind the image that was not read; 0 when all was read.
    #[serde(default)]
    pub largest_unread: u64,
    /// The clone's write counters before the first read.
    #[serde(default)]
    pub writes: WriteMark,
}

impl CloneProof {
    /// Whether every byte behind the image was read.
    pub fn is_whole(&self) -> bool {
        self.behind_read == self.behind
    }

    /// How much behind the image was proven to be zero, in one sentence.
    pub fn words(&self) -> String {
        if self.is_whole() {
            return format!(
                "all {} bytes behind the image were read and are zero",
                self.behind
            );
        }
        format!(
            "of {} bytes behind the image {} were read and are zero; the largest run that could have been missed is {} ({} \
             bytes); `proof: full` reads all, `proofSeconds` more",
            self.behind,
            self.behind_read,
            size::words(self.largest_unread),
            self.largest_unread
        )
    }

    /// Removes how far the proof came in its time, and the write counters: they differ between two proofs of an unchanged
    /// disk.
    pub(super) fn forget_reading(&mut self) {
        if !self.is_whole() {
            self.behind_read = 0;
            self.largest_unread = 1;
        }
        self.writes = WriteMark::default();
    }
}

/// One way in which a disk is unlike an untouched clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deviation {
    /// Where, e.g. `partition 1`.
    pub place: String,
    /// What, e.g. `mount count`.
    pub field: String,
    /// Value on this disk.
    pub here: String,
    /// Value on the root disk; empty without one.
    pub root: String,
    /// Why it matters.
    pub why: String,
}

impl Deviation {
    /// In one sentence.
    pub fn sentence(&self) -> String {
        let Self {
            place,
            field,
            here,
            root,
            why,
        } = self;
        if root.is_empty() {
            format!("{place}: {field} is {here}: {why}")
        } else {
            format!("{place}: {field} is {here}, on the root disk {root}: {why}")
        }
    }
}

/// What is known of a disk declared with `content: image-clone` that is not blank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "clone")]
pub enum CloneState {
    /// An untouched clone.
    Untouched(CloneProof),
    /// An untouched clone that the agent began to erase: each block of the image is zero or as it was then.
    Interrupted {
        /// The proof of that time.
        proof: CloneProof,
        /// Bytes of the image that are left to be erased.
        left: u64,
    },
    /// Not proven to be an untouched clone.
    Refused {
        /// How it is unlike one.
        deviations: Vec<Deviation>,
    },
    /// It could not be judged.
    Unknown(Doubt),
}

/// The request to erase one clone: all that a second judgement must find again before the first byte is erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EraseIntent {
    /// Name of the disk in the settings.
    pub name: String,
    /// By what it was found.
    pub key: Key,
    /// The device.
    pub device: DeviceId,
    /// Why it may be erased.
    pub proof: CloneProof,
    /// Whether an erasure that was interrupted goes on.
    pub resume: bool,
}

/// What is written to the journal before the first byte of a clone is erased, beside its [`Fingerprint`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EraseRecord {
    /// [`RECORD_FORMAT`].
    pub format: u32,
    /// Name of the disk in the settings.
    pub name: String,
    /// The device at that time.
    pub device: DeviceId,
    /// Why it may be erased.
    pub proof: CloneProof,
    /// When, nanoseconds since 1970.
    pub at_ns: u64,
}

impl EraseRecord {
    /// Whether it can be about this device: same size and serial. The content decides, not this.
    pub fn fits(&self, device: &DeviceId) -> bool {
        self.format == RECORD_FORMAT && self.device.size == device.size && self.device.serial == device.serial
    }

    /// The evidence that the journal keeps of an erased disk.
    pub fn evidence(proof: &CloneProof) -> journal::Evidence {
        journal::Evidence::ErasedClone {
            digest: proof.digest.clone(),
        }
    }
}
