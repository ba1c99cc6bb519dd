//! Journal on the root disk: what the agent started and finished on each declared disk. It is
//! written before each destructive step.

use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::ProofKind;

use super::{
    device::DeviceId,
    known::KnownDisks,
    probe::{Blankness, Content},
    wanted::Key,
    writes::WriteMark,
};

/// Format version of the files. A reader rejects a newer one, and so formats nothing.
pub const FORMAT: u32 = 1;

/// Progress of a disk. It returns only to `Intended`, and from `Used` only for an ephemeral disk or
/// after an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Progress {
    /// `mkfs` (or `luksFormat`) may have started. The disk has no user data.
    Intended,
    /// LUKS only: the header is complete; `mkfs` in the container may have started.
    Encrypted,
    /// The filesystem is complete and was never mounted where others can write to it.
    Formatted,
    /// The agent copies files to it at a private mount point.
    Seeding,
    /// The files are copied and verified.
    Seeded,
    /// It was mounted at its place and may have user data. Never formatted again.
    Used,
}

/// Journal entry of one declared disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// [`FORMAT`].
    pub format: u32,
    /// Name of the disk in the settings.
    pub name: String,
    /// Key by which the device was matched.
    pub key: Key,
    pub progress: Progress,
    /// Device when the intent was written.
    pub device: DeviceId,
    /// Boot in which the intent was written.
    pub boot_id: String,
    /// Filesystem to make, e.g. `xfs`.
    pub filesystem: String,
    pub uuid: String,
    /// UUID of the LUKS header, if the disk is encrypted.
    pub luks_uuid: Option<String>,
    /// Proof that it was blank, or the approval in its place.
    pub evidence: Evidence,
    /// Time when the intent was written, nanoseconds since 1970.
    pub at_ns: u64,
    /// Arguments of the last started tool, without program and device. The content of the disk is
    /// compared with the result of the same arguments. Empty in entries of older agents.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// The last check before the tool found that something else had written to the disk. Then a
    /// proof that reads only part of the disk does not permit formatting.
    #[serde(default)]
    pub others_wrote: bool,
    /// Directories of the filesystem that were filled for a place or mounted at one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binds: Vec<BindRecord>,
}

impl Entry {
    /// Whether content of that kind and UUID is what the entry records as complete: the filesystem,
    /// or the LUKS container of an encrypted disk.
    pub fn records(&self, kind: &str, uuid: Option<&str>) -> bool {
        let (since, own, recorded) = if kind == "crypto_LUKS" {
            (Progress::Encrypted, kind, self.luks_uuid.as_deref())
        } else {
            let filesystem = self.filesystem.as_str();
            (Progress::Formatted, filesystem, Some(self.uuid.as_str()))
        };
        let same = |(one, other): (&str, &str)| !one.is_empty() && one.eq_ignore_ascii_case(other);
        self.progress >= since && self.format <= FORMAT && kind == own && uuid.zip(recorded).is_some_and(same)
    }
}

/// State of a directory of a filesystem with places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BindRecord {
    pub directory: String,
    pub path: String,
    /// The directory was mounted at the place, or is about to be, so it may have user data.
    pub used: bool,
    /// Stamp of the files at the place that were copied to it; `None` if nothing was copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<u64>,
}

/// Why formatting was allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "because")]
pub enum Evidence {
    Blank(Blankness),
    /// The disk had the declared filesystem already and was not formatted.
    Found,
    /// The disk had an untouched clone of the OS image, which the agent erased. Formatting it needs
    /// the proof of blankness after the erasure.
    ErasedClone {
        /// [`super::clone::CloneProof::digest`].
        digest: String,
    },
    /// An admin approved the refusal with this hash.
    Approved {
        /// See [`super::plan::Refusal::evidence`].
        hash: String,
        /// Kind of proof at the approval; it is repeated.
        proof: ProofKind,
        /// [`Content::digest`] at the approval, which must still match; `None` if the disk was
        /// blank then.
        digest: Option<String>,
        /// [`Content::apart`] at the approval: its MiB is read again.
        #[serde(default)]
        place: Option<u64>,
        /// Write counters of the device when it was read for the plan.
        #[serde(default)]
        writes: WriteMark,
    },
}

impl Evidence {
    /// Kind of proof to repeat before formatting.
    pub fn proof(&self) -> ProofKind {
        match self {
            Self::Blank(blank) => blank.proof,
            Self::Approved { proof, .. } => *proof,
            Self::Found => ProofKind::Sampled,
            // The proof after the erasure replaces it; alone it permits nothing.
            Self::ErasedClone { .. } => ProofKind::Full,
        }
    }

    /// Clears the progress of a timed proof and the write counters: they differ between two probes
    /// of an unchanged disk.
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

/// Approval of a refusal by an admin: `virtfleet-agent disks approve SERIAL --evidence HASH`. Valid
/// once, for that evidence only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Name of the disk in the settings.
    pub name: String,
    /// Evidence hash of the refusal.
    pub hash: String,
    /// Time, nanoseconds since 1970.
    pub at_ns: u64,
    /// Facts of the refusal, to show what changed if the evidence differs.
    #[serde(default)]
    pub facts: Vec<(String, String)>,
}

/// Non-zero byte outside of the regions that every proof reads, found by a timed proof. Later
/// probes read it first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundByte {
    /// Name of the disk in the settings.
    pub name: String,
    pub serial: Option<String>,
    /// Size of the device in bytes.
    pub size: u64,
    /// Offset of the byte.
    pub offset: u64,
}

impl FoundByte {
    /// Whether it was found on that disk. A disk that had no serial then, or has none now, is the
    /// same one: the VM's spec may give or take it. To read one more byte costs nothing, and not to
    /// read it could take a disk with data for blank.
    pub fn is_on(&self, name: &str, device: &DeviceId) -> bool {
        let differ = |(then, now): (&String, &String)| then != now;
        let is_other = self
            .serial
            .as_ref()
            .zip(device.serial.as_ref())
            .is_some_and(differ);
        (self.name.as_str(), self.size) == (name, device.size) && !is_other
    }
}

/// Line of the audit record, written before and after each step that may destroy data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// Time, nanoseconds since 1970.
    pub at_ns: u64,
    pub boot_id: String,
    /// Name of the disk in the settings.
    pub name: String,
    /// `about-to`, `done` or `failed`; `restored` if the journal has the previous entry again.
    pub moment: String,
    /// The step, e.g. `format`.
    pub step: String,
    pub device: DeviceId,
    /// Why the step was allowed.
    pub evidence: Option<Evidence>,
    /// Content of the device, if it was not blank.
    pub content: Option<Content>,
    /// UUID of the new filesystem.
    pub uuid: Option<String>,
    /// Tool, as it is called, and its version.
    pub tool: String,
    /// Error, if it failed.
    pub error: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Journal {
    /// Entries of all declared disks that the agent ever changed.
    pub entries: Vec<Entry>,
    /// Approvals that were not used yet.
    pub approvals: Vec<Approval>,
    /// Bytes found outside of the regions that every proof reads, at most one per disk.
    pub found: Vec<FoundByte>,
    /// The disks that were there in the first boot; `None` if no run has listed them.
    pub known_disks: Option<KnownDisks>,
    /// Unreadable files by disk name, with the reason; these disks are refused. An empty name
    /// stands for the directory, and refuses all disks.
    pub broken: Vec<(String, String)>,
}

impl Journal {
    /// Whether the directory is unusable: then all disks are refused.
    pub fn is_unusable(&self) -> bool {
        self.broken.iter().any(|(disk, _)| disk.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::dev_number::DevNumber, *};

    #[test]
    fn a_serial_that_comes_or_goes_does_not_make_it_another_disk() {
        let device = |serial: Option<&str>, size| DeviceId {
            name: "vdb".into(),
            number: DevNumber {
                major: 253,
                minor: 16,
            },
            diskseq: None,
            size,
            serial: serial.map(str::to_owned),
            partition: None,
        };
        for (then, now, same) in [
            (None, None, true),
            (Some("a"), Some("a"), true),
            (None, Some("a"), true),
            (Some("a"), None, true),
            (Some("a"), Some("b"), false),
        ] {
            let found = FoundByte {
                name: "data".into(),
                serial: then.map(str::to_owned),
                size: 1 << 30,
                offset: 4096,
            };
            assert_eq!(
                found.is_on("data", &device(now, 1 << 30)),
                same,
                "{then:?} {now:?}"
            );
            assert!(!found.is_on("other", &device(now, 1 << 30)));
            assert!(!found.is_on("data", &device(now, 2 << 30)));
        }
    }
}
