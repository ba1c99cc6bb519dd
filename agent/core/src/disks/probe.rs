//! Result of probing a device: blank, data, or unknown. Unknown is never treated as blank.

use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::ProofKind;

use super::{size, writes::WriteMark};

/// Range of a device that a proof reads, in bytes. Both values are multiples of 4096, except at the
/// end of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Region {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// Result of probing a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "found")]
pub enum Probe {
    /// Proven blank: every region was read without an error and is zero, and no tool recognises
    /// anything.
    Blank(Blankness),
    HasData(Content),
    /// The content cannot be determined. It always leads to a refusal.
    Unknown(Doubt),
}

/// A proof that a device is blank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Blankness {
    pub proof: ProofKind,
    /// Number of regions that every proof of this kind reads.
    pub regions: usize,
    /// Number of bytes that were read; all are zero.
    pub bytes: u64,
    /// Size of the device in bytes; 0 in a journal of an older agent.
    pub size: u64,
    /// Longest run of unread bytes; 0 if the whole device was read.
    pub largest_unread: u64,
    /// Write counters of the device before the first read.
    pub writes: WriteMark,
}

impl Blankness {
    /// Whether every byte of the device was read.
    pub fn is_whole(&self) -> bool {
        self.size > 0 && self.bytes == self.size && self.largest_unread == 0
    }

    /// Describes how much was proven, in one sentence.
    pub fn words(&self) -> String {
        if self.is_whole() {
            return format!(
                "fully proven: all {} were read and are zero",
                size::words(self.size)
            );
        }
        if self.size == 0 {
            return format!("{} were read and are zero", size::words(self.bytes));
        }
        let percent = u128::from(self.bytes) * 1000 / u128::from(self.size);
        format!(
            "read {} of {} ({}.{} %), all zero; the largest run that could have been missed is {} ({} bytes); `proof: full` reads all, \
             `proofSeconds` more",
            size::words(self.bytes),
            size::words(self.size),
            percent / 10,
            percent % 10,
            size::words(self.largest_unread),
            self.largest_unread,
        )
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Content {
    /// Kind as blkid(8) names it, e.g. `ext4`, `crypto_LUKS`, `LVM2_member`, `gpt`; `mvbd` for
    /// KubeVirt's downward metrics; empty for data that no tool recognises.
    pub kind: String,
    /// Further signatures, if there are several (blkid reports the device as ambivalent).
    pub also: Vec<String>,
    /// Whether it is the agent's own filesystem, in use according to the journal, although blkid
    /// reports something else ([`super::own`]). [`Self::also`] is then what is not proven to be the
    /// data of its files.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ours: bool,
    /// Signatures in the data of that filesystem's files, e.g. `iso9660 at byte 32769`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<String>,
    pub uuid: Option<String>,
    pub label: Option<String>,
    /// Offset of the first non-zero byte that was read.
    pub first_byte: Option<u64>,
    /// Offset of the first non-zero byte outside of the regions that every proof of the kind reads,
    /// if one was found there.
    pub apart: Option<u64>,
    /// SHA-256 in hex over the regions that every proof of the kind reads, and over the MiB of
    /// [`Self::first_byte`] if it is elsewhere. Probes with equal digests read the same content.
    pub digest: String,
    /// Whether every byte of the device was read.
    pub whole: bool,
    /// Write counters of the device before the first read.
    pub writes: WriteMark,
    /// Size of the filesystem in bytes, if it is of a supported kind.
    pub filesystem_bytes: Option<u64>,
    /// Number of devices of the filesystem, if it is a btrfs and its superblock was read.
    pub devices: Option<u64>,
    /// For a filesystem whose `mkfs` the journal records as started and not finished: whether its
    /// checker finds no error. `None` if the checker did not run.
    pub complete: Option<bool>,
    /// For the same filesystem, and for unknown data where the journal has a started `mkfs`: origin
    /// of the content. `None` if it was not determined.
    pub left: Option<Left>,
}

/// Origin of the content of a disk with a started and unfinished `mkfs` in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "by")]
pub enum Left {
    /// That `mkfs` wrote every non-zero byte that was read, and the filesystem was not used since
    /// ([`super::remains`]).
    Tool,
    /// The filesystem was used since it was made ([`super::superblock::Superblock::used`]).
    User {
        /// E.g. `mounted 2 times`.
        trace: String,
    },
    /// There is a byte that `mkfs` did not write.
    Foreign {
        /// Offset of the byte on the device.
        at: u64,
    },
}

impl Content {
    /// Whether a tool recognises the content. An admin can approve content that no tool recognises.
    pub fn is_known(&self) -> bool {
        !self.kind.is_empty()
    }
}

/// Reason why the content of a device is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Doubt {
    /// Problem, e.g. `read error at byte 4096: Input/output error`.
    pub reason: String,
    /// Whether a retry may help: after a timeout, or if the device is busy or went away.
    pub passing: bool,
}
