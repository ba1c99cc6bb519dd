//! What was begun and what was finished with each declared disk: kept on the root disk, written before each destructive step.

use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::ProofKind;

use super::{
    device::DeviceId,
    probe::{Blankness, Content},
    wanted::Key,
    writes::WriteMark,
};

/// The format of the files; a reader refuses a newer one, and so formats nothing.
pub const FORMAT: u32 = 1;

/// How far a disk has come. It never goes back but through `Intended`, and out of `Used` only for an ephemeral disk or by approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Progress {
    /// `mkfs` (or `luksFormat`) may have begun. Nothing of anybody's is on the disk.
    Intended,
    /// LUKS only: the header is complete, the filesystem in it may have been begun.
    Encrypted,
    /// The filesystem is complete and was never mounted where others could write to it.
    Formatted,
    /// Files are being copied to it at a private place.
    Seeding,
    /// They are copied and compared.
    Seeded,
    /// It was mounted at its place: whatever is on it may be somebody's. Never formatted again.
    Used,
}

/// The journal's entry of one declared disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// [`FORMAT`].
    pub format: u32,
    /// The disk's name in the settings.
    pub name: String,
    /// By what it was found.
    pub key: Key,
    /// How far it has come.
    pub progress: Progress,
    /// The device, when the intent was written.
    pub device: DeviceId,
    /// The boot in which that was.
    pub boot_id: String,
    /// What it becomes, e.g. `xfs`.
    pub filesystem: String,
    /// The filesystem's UUID.
    pub uuid: String,
    /// The LUKS header's UUID, when it is encrypted.
    pub luks_uuid: Option<String>,
    /// The proof that it was blank, or what was approved in its place.
    pub evidence: Evidence,
    /// When the intent was written, nanoseconds since 1970.
    pub at_ns: u64,
    /// Arguments of the tool that was started last, without program and device: what it left on the
    /// disk is compared with what the same arguments give. Empty in entries of older agents.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// The last check before the tool found that something else had written to the disk. Then a
    /// proof that reads a part of the disk is no reason to format it.
    #[serde(default)]
    pub others_wrote: bool,
    /// Directories of the filesystem that were filled for a place, or mounted at one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binds: Vec<BindRecord>,
}

/// What is known of a directory of a filesystem with places. One record for each directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BindRecord {
    /// The directory's name.
    pub directory: String,
    /// The place.
    pub path: String,
    /// The directory was mounted at the place, or is about to be: from then on what is in it may be somebody's.
    pub used: bool,
    /// What was copied to it, as the agent's stamp of the files at the place; none when nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<u64>,
}

/// Why formatting was right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "because")]
pub enum Evidence {
    /// It was blank.
    Blank(Blankness),
    /// It held the declared filesystem already: it was mounted as it is, and nothing was formatted.
    Found,
    /// It held an untouched clone of the OS image, which the agent erased. What is made on it rests on the blankness found after that,
    /// never on this.
    ErasedClone {
        /// [`super::clone::CloneProof::digest`].
        digest: String,
    },
    /// A person has judged a refusal that had this hash.
    Approved {
        /// See [`super::plan::Refusal::evidence`].
        hash: String,
        /// What was read when it was judged, to be read again.
        proof: ProofKind,
        /// [`Content::digest`] of what was judged, to be found again; none when the disk was blank then.
        digest: Option<String>,
        /// [`Content::apart`] of what was judged: its MiB is read again.
        #[serde(default)]
        place: Option<u64>,
        /// The device's write counters when it was read for the plan.
        #[serde(default)]
        writes: WriteMark,
    },
}

impl Evidence {
    /// What is read to prove that the disk is blank.
    pub fn proof(&self) -> ProofKind {
        match self {
            Self::Blank(blank) => blank.proof,
            Self::Approved { proof, .. } => *proof,
            Self::Found => ProofKind::Sampled,
            // It is replaced by the proof that follows the erasure; alone it permits nothing.
            Self::ErasedClone { .. } => ProofKind::Full,
        }
    }

    /// Removes how far a proof came in its time, and the write counters: they differ between two probes of an unchanged disk.
    pub(super) fn forget_reading(&mut self) {
        match self {
            Self::Blank(blank) => {
                if !blank.is_whole() {
                    blank.bytes = 0;
                    blank.largest_unread = 1;
                }
                blank.writes = WriteMark::default();
            }
            Self::Approved { writes, .. } => *writes = WriteMark::default(),
            Self::Found | Self::ErasedClone { .. } => {}
        }
    }
}

/// A person's word on a refusal: `virtfleet-agent disks approve SERIAL --evidence HASH`. Good once, for that evidence alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The disk's name in the settings.
    pub name: String,
    /// The refusal's evidence.
    pub hash: String,
    /// When, nanoseconds since 1970.
    pub at_ns: u64,
    /// The refusal's facts: what has changed when the evidence is another one.
    #[serde(default)]
    pub facts: Vec<(String, String)>,
}

/// A byte outside of what every proof reads, found because there was time to read on. Later probes read it first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundByte {
    /// The disk's name in the settings.
    pub name: String,
    /// The device's serial.
    pub serial: Option<String>,
    /// The device's size in bytes.
    pub size: u64,
    /// Its offset.
    pub offset: u64,
}

impl FoundByte {
    /// Whether it was found on that disk.
    pub fn is_on(&self, name: &str, device: &DeviceId) -> bool {
        (self.name.as_str(), &self.serial, self.size) == (name, &device.serial, device.size)
    }
}

/// A line of the audit record: before each step that destroys or might, and after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// When, nanoseconds since 1970.
    pub at_ns: u64,
    /// The boot.
    pub boot_id: String,
    /// The disk's name in the settings.
    pub name: String,
    /// `about-to` or `done` or `failed`; `restored` when the journal has the entry of before again.
    pub moment: String,
    /// The step, e.g. `format`.
    pub step: String,
    /// The device.
    pub device: DeviceId,
    /// Why it was right.
    pub evidence: Option<Evidence>,
    /// What was on it, when it was not blank.
    pub content: Option<Content>,
    /// The UUID that it gets.
    pub uuid: Option<String>,
    /// The tool as it is called, and its version.
    pub tool: String,
    /// How it failed.
    pub error: Option<String>,
}

/// What the journal knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Journal {
    /// One entry for each declared disk that was ever touched.
    pub entries: Vec<Entry>,
    /// What persons have judged and was not used yet.
    pub approvals: Vec<Approval>,
    /// Bytes that were found beyond what every proof reads, one a disk.
    pub found: Vec<FoundByte>,
    /// Files that cannot be read, by the disk's name, with the reason: that disk is refused. An empty name stands for the directory, and refuses all.
    pub broken: Vec<(String, String)>,
}
