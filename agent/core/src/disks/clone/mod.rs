//! Decides whether a disk is an untouched clone of the OS image from which the VM's root disk was
//! cloned, so that it has no user data. Pure: [`judge`] reads both disks through [`Source`].
//!
//! `docs/decisions/0018-image-clones.md` explains the conditions, and why they prove that nothing
//! was written since the disk was cloned.

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

/// Time of the first boot of the root disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FirstBoot {
    /// Seconds since 1970. At or after the true first boot, never before.
    pub at: u64,
    /// File whose creation time was used.
    pub source: String,
}

/// Proof that one partition of the clone has no user data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedPartition {
    /// Number in the partition table, from 1.
    pub number: usize,
    /// First byte on the disk.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// Reason why it is untouched, one sentence.
    pub because: String,
}

/// Proof that a disk is an untouched clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloneProof {
    /// Kernel name of the root disk.
    pub root: String,
    /// Size of the image in bytes: up to the end of its backup partition table.
    pub image_bytes: u64,
    pub disk_guid: String,
    /// Its partitions, by number.
    pub partitions: Vec<CheckedPartition>,
    /// Time of the first boot of the root disk.
    pub first_boot: FirstBoot,
    /// SHA-256 in hex over both partition tables and each ext4 superblock, with the sizes. Two
    /// proofs with equal digests are about the same clone.
    pub digest: String,
    /// Bytes after the image that were read and are zero.
    pub behind_read: u64,
    /// Bytes after the image.
    pub behind: u64,
    /// Longest unread run of bytes after the image; 0 if all were read.
    #[serde(default)]
    pub largest_unread: u64,
    /// The clone's write counters before the first read.
    #[serde(default)]
    pub writes: WriteMark,
}

impl CloneProof {
    /// Whether every byte after the image was read.
    pub fn is_whole(&self) -> bool {
        self.behind_read == self.behind
    }

    /// Describes how much of the space after the image was proven zero.
    pub fn words(&self) -> String {
        if self.is_whole() {
            return format!(
                "all {} bytes behind the image were read and are zero",
                self.behind
            );
        }
        format!(
            "of {} bytes behind the image {} were read and are zero; the largest run that could have been missed is {} ({} bytes); `proof: full` reads \
             all, `proofSeconds` more",
            self.behind,
            self.behind_read,
            size::words(self.largest_unread),
            self.largest_unread
        )
    }

    /// Clears the progress of the timed proof and the write counters: they differ between two
    /// proofs of an unchanged disk.
    pub(super) fn forget_reading(&mut self) {
        if !self.is_whole() {
            self.behind_read = 0;
            self.largest_unread = 1;
        }
        self.writes = WriteMark::default();
    }
}

/// Why a disk is not proven to be an untouched clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotProven {
    /// It differs from an untouched clone.
    Deviates(Vec<Deviation>),
    /// A disk cannot be read.
    Unreadable(String),
}

/// Difference from an untouched clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deviation {
    /// Location, e.g. `partition 1`.
    pub place: String,
    /// Property, e.g. `mount count`.
    pub field: String,
    /// Value on this disk.
    pub here: String,
    /// Value on the root disk; empty if it has none.
    pub root: String,
    /// Why it matters.
    pub why: String,
}

impl Deviation {
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

/// Result for a disk that is declared with `content: image-clone` and is not blank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "clone")]
pub enum CloneState {
    Untouched(CloneProof),
    /// Untouched clone whose erasure was interrupted: each block of the image is zero or as
    /// recorded.
    Interrupted {
        /// Proof from the start of the erasure.
        proof: CloneProof,
        /// Bytes of the image that are not erased yet.
        left: u64,
    },
    /// Not proven to be an untouched clone.
    Refused {
        /// Differences from an untouched clone.
        deviations: Vec<Deviation>,
    },
    /// It could not be judged.
    Unknown(Doubt),
}

/// Request to erase one clone. A second judgement must confirm it before the first byte is erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EraseIntent {
    /// Name of the disk in the settings.
    pub name: String,
    /// Key by which the device was matched.
    pub key: Key,
    pub device: DeviceId,
    /// Proof that it may be erased.
    pub proof: CloneProof,
    /// Whether this continues an interrupted erasure.
    pub resume: bool,
}

/// Journal record, written before the first byte of a clone is erased, together with its
/// [`Fingerprint`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EraseRecord {
    /// [`RECORD_FORMAT`].
    pub format: u32,
    /// Name of the disk in the settings.
    pub name: String,
    pub device: DeviceId,
    /// Proof that it may be erased.
    pub proof: CloneProof,
    /// Time, nanoseconds since 1970.
    pub at_ns: u64,
}

impl EraseRecord {
    /// Whether the record can belong to this device: size and serial are equal. The content is
    /// decisive.
    pub fn fits(&self, device: &DeviceId) -> bool {
        self.format == RECORD_FORMAT && self.device.size == device.size && self.device.serial == device.serial
    }

    /// Evidence that the journal keeps about an erased disk.
    pub fn evidence(proof: &CloneProof) -> journal::Evidence {
        journal::Evidence::ErasedClone {
            digest: proof.digest.clone(),
        }
    }
}
