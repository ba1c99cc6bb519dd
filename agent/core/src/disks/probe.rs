//! What was found on a device: blank, data, or not known. Not known is never blank.

use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::ProofKind;

use super::{size, writes::WriteMark};

/// A part of a device that a proof reads, in bytes; both are multiples of 4096 unless the device ends before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Region {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub length: u64,
}

/// The result of looking at a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "found")]
pub enum Probe {
    /// Proven: every region of the proof was read without an error and is zero, no tool and no kernel knows anything on it.
    Blank(Blankness),
    /// There is something on it.
    HasData(Content),
    /// It could not be found out. Nothing follows but a refusal.
    Unknown(Doubt),
}

/// A proof that a device is blank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Blankness {
    /// What was to be read.
    pub proof: ProofKind,
    /// Number of parts that every proof of this kind reads.
    pub regions: usize,
    /// Bytes that were read, all of them zero.
    pub bytes: u64,
    /// Bytes of the device; 0 in a journal that an older agent wrote.
    pub size: u64,
    /// The longest run of bytes that was not read; 0 when the whole device was read.
    pub largest_unread: u64,
    /// The device's write counters before the first read.
    pub writes: WriteMark,
}

impl Blankness {
    /// Whether every byte of the device was read.
    pub fn is_whole(&self) -> bool {
        self.size > 0 && self.bytes == self.size && self.largest_unread == 0
    }

    /// How much was proven, in one sentence.
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

/// What is on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Content {
    /// What it is, as blkid(8) names it, e.g. `ext4`, `crypto_LUKS`, `LVM2_member`, `gpt`; `mvbd` for KubeVirt's downward metrics; empty for
    /// bytes that nobody knows.
    pub kind: String,
    /// Further signatures, when there are several (blkid calls that ambivalent).
    pub also: Vec<String>,
    /// The filesystem's UUID.
    pub uuid: Option<String>,
    /// The filesystem's label.
    pub label: Option<String>,
    /// Where the first byte is that is not zero, in what was read.
    pub first_byte: Option<u64>,
    /// The first byte that is not zero outside of what every proof of the kind reads, when one was found there.
    pub apart: Option<u64>,
    /// SHA-256, in hex, over what every proof of the kind reads, and over the MiB that holds [`Self::first_byte`] when that lies elsewhere: two probes that
    /// agree in it have read the same.
    pub digest: String,
    /// Whether every byte of the device was read.
    pub whole: bool,
    /// The device's write counters before the first read.
    pub writes: WriteMark,
    /// The size of the filesystem in bytes, when it is one of ours and says it.
    pub filesystem_bytes: Option<u64>,
    /// For a filesystem whose `mkfs` the journal knows as begun and not as ended: whether the filesystem's own checker finds nothing wrong. None when it
    /// was not asked.
    pub complete: Option<bool>,
    /// For the same filesystem, and for bytes that no tool knows where the journal has a begun `mkfs`: who wrote them. None when that was not found out.
    pub left: Option<Left>,
}

/// What a disk holds on which the journal has a `mkfs` as begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "by")]
pub enum Left {
    /// Every byte that was read and is not zero was written by that `mkfs`, and the filesystem was
    /// not used since ([`super::remains`]).
    Tool,
    /// The filesystem was used since it was made, with the trace of that
    /// ([`super::superblock::Superblock::used`]).
    User {
        /// E.g. `mounted 2 times`.
        trace: String,
    },
    /// There is a byte that the `mkfs` did not write.
    Foreign {
        /// Its place on the device.
        at: u64,
    },
}

impl Content {
    /// Whether any tool knows what it is. Bytes that nobody knows can be judged by a person.
    pub fn is_known(&self) -> bool {
        !self.kind.is_empty()
    }
}

/// Why it is not known what is on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Doubt {
    /// What went wrong, e.g. `read error at byte 4096: Input/output error`.
    pub reason: String,
    /// Whether trying again later may help: a timeout, a device that is busy or went away.
    pub passing: bool,
}
