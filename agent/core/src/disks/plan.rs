//! The plan: what is done to each declared disk, in order, and what is refused, with the evidence.

use serde::{Deserialize, Serialize};

pub use super::{
    planning::{gate, plan, required},
    refusal::evidence_hash,
};

use super::{
    clone::EraseIntent,
    device::DeviceId,
    journal::Evidence,
    wanted::{Encryption, Key, Owner},
};

/// The wish to format one device: everything that a second look must find again before `mkfs` runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FormatIntent {
    /// The declared disk.
    pub name: String,
    /// By what it was found.
    pub key: Key,
    /// The device.
    pub device: DeviceId,
    /// Why it may be formatted.
    pub evidence: Evidence,
    /// `ext4`, `xfs`, `btrfs`, `swap`, or `luks2`.
    pub filesystem: String,
    /// The UUID that it gets.
    pub uuid: String,
    /// The arguments of its `mkfs` before the device, without the program's name.
    pub arguments: Vec<String>,
}

/// What a file system stands on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "on")]
pub enum Place {
    /// The disk itself.
    Disk(DeviceId),
    /// An opened LUKS container: its name in `/dev/mapper`.
    Mapping {
        /// E.g. `virtfleet-containers`.
        mapping: String,
    },
}

/// One step. Steps of one disk run in order; the first that fails ends that disk's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "step")]
pub enum Step {
    /// Put the zeros back that the proof saw, over what our own `mkfs` left unfinished, so that it can run again.
    ClearUnfinished(FormatIntent),
    /// Erase an untouched clone of the OS image, so that the disk is blank.
    EraseClone(EraseIntent),
    /// Make the filesystem (or swap) on a disk that is proven blank.
    Format(FormatIntent),
    /// Make a LUKS2 container on a disk that is proven blank.
    Encrypt {
        /// What is to be formatted; its `filesystem` is `luks2`.
        intent: FormatIntent,
        /// The keys.
        encryption: Encryption,
    },
    /// Open a LUKS2 container.
    Open {
        /// The disk.
        device: DeviceId,
        /// The name in `/dev/mapper`.
        mapping: String,
        /// The header's UUID.
        luks_uuid: String,
        /// The keys.
        encryption: Encryption,
    },
    /// Make the filesystem in a container that was made for it and never held one.
    FormatMapped {
        /// The name in `/dev/mapper`.
        mapping: String,
        /// The intent; its device is the disk below.
        intent: FormatIntent,
    },
    /// Copy what lies under the mount point to the new filesystem, and compare.
    Seed {
        /// What is copied to.
        place: Place,
        /// The filesystem.
        filesystem: String,
        /// Where it will be mounted.
        mount_point: String,
    },
    /// Write a file below `/etc`: a mount unit, a drop-in, a line of fstab or crypttab.
    WriteFile {
        /// Its path.
        path: String,
        /// All of it.
        text: String,
    },
    /// Remove a file that we wrote and that is no longer wanted.
    RemoveFile {
        /// Its path.
        path: String,
    },
    /// Make the mount point's directory.
    MakeMountPoint {
        /// Its path.
        path: String,
    },
    /// Mount it, by UUID.
    Mount {
        /// What is mounted.
        place: Place,
        /// The filesystem's UUID.
        uuid: String,
        /// Its kind.
        filesystem: String,
        /// Where.
        mount_point: String,
        /// How.
        options: Vec<String>,
    },
    /// Make a directory at the top of the mounted filesystem for one of its places, like the one that lies there. A
    /// directory that has files already stays as it is.
    MakeDirectory {
        /// Where the filesystem is mounted.
        mount_point: String,
        /// The directory's name.
        directory: String,
        /// The place.
        path: String,
        /// Copy the files that lie at the place, and compare.
        copy: bool,
        /// Owner and mode, where they are not those of the directory at the place.
        owner: Option<Owner>,
    },
    /// Mount a directory of the mounted filesystem at its place.
    Bind {
        /// What the filesystem stands on.
        place: Place,
        /// Where the filesystem is mounted.
        mount_point: String,
        /// The directory's name.
        directory: String,
        /// The place.
        path: String,
    },
    /// Write into the journal that a directory is in use at its place, where the agent has not mounted it.
    RememberBind {
        /// The directory's name.
        directory: String,
        /// The place.
        path: String,
    },
    /// Use it as swap, by UUID.
    SwapOn {
        /// What.
        place: Place,
        /// The swap area's UUID.
        uuid: String,
        /// `discard`, `pri=10`.
        options: Vec<String>,
    },
    /// Write into the journal that a disk is in use that is in its place already, and that we have not put there.
    Remember {
        /// What is in place.
        place: Place,
        /// The filesystem's UUID.
        uuid: String,
        /// Its kind.
        filesystem: String,
    },
    /// Change mount options of a mounted filesystem, as far as that is done while it is in use.
    Remount {
        /// What is mounted.
        place: Place,
        /// Where it is mounted.
        mount_point: String,
        /// The flags that it has afterwards, and what changes of its own options.
        options: Vec<String>,
    },
    /// Grow the LUKS mapping to its disk.
    GrowMapping {
        /// The name in `/dev/mapper`.
        mapping: String,
        /// The keys.
        encryption: Encryption,
    },
    /// Grow the mounted filesystem to its device.
    Grow {
        /// What.
        place: Place,
        /// Its kind.
        filesystem: String,
        /// Where it is mounted.
        mount_point: String,
        /// Bytes now.
        from: u64,
        /// Bytes of the device.
        to: u64,
    },
    /// Give the root of the mounted filesystem its owner and mode.
    Own {
        /// Where it is mounted.
        mount_point: String,
        /// Who.
        owner: Owner,
    },
}

impl Step {
    /// Its name in the plan, the audit record and the failpoints.
    pub fn word(&self) -> &'static str {
        match self {
            Self::ClearUnfinished(_) => "clear-unfinished",
            Self::EraseClone(_) => "erase-clone",
            Self::Format(_) => "format",
            Self::Encrypt { .. } => "encrypt",
            Self::Open { .. } => "open",
            Self::FormatMapped { .. } => "format-mapped",
            Self::Seed { .. } => "seed",
            Self::WriteFile { .. } => "write-file",
            Self::RemoveFile { .. } => "remove-file",
            Self::MakeMountPoint { .. } => "make-mount-point",
            Self::Mount { .. } => "mount",
            Self::MakeDirectory { copy: true, .. } => "fill-directory",
            Self::MakeDirectory { .. } => "make-directory",
            Self::Bind { .. } => "bind",
            Self::RememberBind { .. } => "remember-bind",
            Self::SwapOn { .. } => "swap-on",
            Self::Remember { .. } => "remember",
            Self::Remount { .. } => "remount",
            Self::GrowMapping { .. } => "grow-mapping",
            Self::Grow { .. } => "grow",
            Self::Own { .. } => "own",
        }
    }

    /// Whether it writes to a device what cannot be taken back.
    pub fn destroys(&self) -> bool {
        matches!(
            self,
            Self::ClearUnfinished(_)
                | Self::EraseClone(_)
                | Self::Format(_)
                | Self::Encrypt { .. }
                | Self::FormatMapped { .. }
        )
    }
}

/// Why nothing is done to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// No disk matches. Not a refusal of a disk that is not required yet; it may be plugged in later.
    Missing,
    /// Two or more disks match.
    Ambiguous,
    /// Two declared disks match one device.
    ClaimedTwice,
    /// It carries the system, is read-only, too small, or of a kind that is never formatted.
    NotEligible,
    /// It is mounted, swapped to, partitioned, or held by another device.
    InUse,
    /// There is data on it that is not what was declared.
    ForeignData,
    /// It is declared with `content: image-clone` and not proven to be an untouched clone of the OS image.
    NotAClone,
    /// There are bytes on it that nobody knows.
    UnknownData,
    /// What is on it could not be found out.
    Unreadable,
    /// It was formatted before and is blank now: replaced, or lost.
    BlankAgain,
    /// A `mkfs` was begun on it and not ended, and what is there cannot be proven to be that alone.
    Unfinished,
    /// It is large, what was read of it is blank, and it was not read whole.
    PartlyProven,
    /// It may be shared with another VM.
    MaybeShared,
    /// Two devices carry the filesystem's UUID.
    DuplicateUuid,
    /// Files lie under the mount point, or a mount point above it is not ours to mount over.
    MountPointTaken,
    /// The journal cannot be read or written, or lies on the disk in question.
    NoJournal,
    /// A tool is missing.
    NoTool,
    /// The key is missing or does not fit.
    NoKey,
    /// The settings of this disk make no sense.
    Settings,
}

impl RefusalKind {
    /// Whether a person who has judged the evidence may let it be formatted. Never where a tool knows what is on the disk.
    pub fn may_be_approved(self) -> bool {
        matches!(
            self,
            Self::UnknownData | Self::BlankAgain | Self::Unfinished | Self::PartlyProven
        )
    }
}

/// A refusal with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Why.
    pub kind: RefusalKind,
    /// The device, when there is one.
    pub device: Option<DeviceId>,
    /// In one sentence, with what was found and where.
    pub message: String,
    /// What to do next.
    pub remedy: String,
    /// What was found, by name.
    pub facts: Vec<(String, String)>,
    /// SHA-256 in hex over kind, device and facts: what `disks approve` quotes. Empty when it cannot be approved.
    pub evidence: String,
}

/// What happens to one declared disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskPlan {
    /// Its name in the settings.
    pub name: String,
    /// By what it was found; none when it was not.
    pub key: Option<Key>,
    /// The device; none when there is none, or several.
    pub device: Option<DeviceId>,
    /// What is done, in order. Empty when everything is as asked for.
    pub steps: Vec<Step>,
    /// Why nothing is done, or not all. Steps that are safe all the same stay.
    pub refusals: Vec<Refusal>,
    /// What a person should know, e.g. that the filesystem is smaller than the disk and `grow` is off.
    pub notes: Vec<String>,
}

/// The whole plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// One for each declared disk, in the order of the settings.
    pub disks: Vec<DiskPlan>,
    /// Steps that belong to no disk: the gate before containerd and kubelet.
    pub common: Vec<Step>,
}

impl Plan {
    /// Whether everything is as asked for.
    pub fn is_empty(&self) -> bool {
        self.common.is_empty() && self.disks.iter().all(|disk| disk.steps.is_empty())
    }

    /// Whether it does the same as another plan for the same reasons. How far a proof came in its time is no difference, and neither are the notes; whether
    /// the whole disk was read is one.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.comparable() == other.comparable()
    }

    fn comparable(&self) -> Self {
        let mut plan = self.clone();
        for disk in &mut plan.disks {
            disk.notes.clear();
            for step in &mut disk.steps {
                match step {
                    Step::ClearUnfinished(intent)
                    | Step::Format(intent)
                    | Step::Encrypt { intent, .. }
                    | Step::FormatMapped { intent, .. } => intent.evidence.forget_reading(),
                    Step::EraseClone(intent) => intent.proof.forget_reading(),
                    _ => {}
                }
            }
        }
        plan
    }
}
