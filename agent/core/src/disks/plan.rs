//! The plan: steps in order for each declared disk, and refusals with their evidence.

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

/// Request to format one device. A second probe must confirm all of it before `mkfs` runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FormatIntent {
    /// The declared disk.
    pub name: String,
    /// Key by which the device was matched.
    pub key: Key,
    pub device: DeviceId,
    /// Evidence that it may be formatted.
    pub evidence: Evidence,
    /// `ext4`, `xfs`, `btrfs`, `swap`, or `luks2`.
    pub filesystem: String,
    /// UUID for the new filesystem.
    pub uuid: String,
    /// Arguments of `mkfs` before the device, without the program name.
    pub arguments: Vec<String>,
}

/// Block device on which a filesystem resides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "on")]
pub enum Place {
    Disk(DeviceId),
    /// An open LUKS container: its name in `/dev/mapper`.
    Mapping {
        /// E.g. `virtfleet-containers`.
        mapping: String,
    },
}

/// Step of a plan. The steps of one disk run in order; the first failure ends them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "step")]
pub enum DiskStep {
    /// Overwrite the unfinished `mkfs` of the agent with the zeros that the proof saw, so that
    /// `mkfs` can run again.
    ClearUnfinished(FormatIntent),
    /// Erase an untouched clone of the OS image, so that the disk is blank.
    EraseClone(EraseIntent),
    /// Make the filesystem (or swap) on a disk that is proven blank.
    Format(FormatIntent),
    /// Make a LUKS2 container on a disk that is proven blank.
    Encrypt {
        /// Device to format; `filesystem` is `luks2`.
        intent: FormatIntent,
        /// Keys of the container.
        encryption: Encryption,
    },
    /// Open a LUKS2 container.
    Open {
        /// Device with the container.
        device: DeviceId,
        /// Name in `/dev/mapper`.
        mapping: String,
        luks_uuid: String,
        /// Keys of the container.
        encryption: Encryption,
    },
    /// Make the filesystem in a new container that never contained one.
    FormatMapped {
        /// Name in `/dev/mapper`.
        mapping: String,
        /// What to make; the device is the disk below the container.
        intent: FormatIntent,
    },
    /// Copy the files below the mount point to the new filesystem, and verify the copy.
    Seed {
        /// Target of the copy.
        place: Place,
        filesystem: String,
        /// Later mount point.
        mount_point: String,
    },
    /// Write a file below `/etc`: a mount unit, a drop-in, a line of fstab or crypttab.
    WriteFile { path: String, text: String },
    /// Remove a file of the agent that is no longer needed.
    RemoveFile { path: String },
    /// Create the directory of the mount point.
    MakeMountPoint { path: String },
    /// Mount the filesystem by UUID.
    Mount {
        /// Device with the filesystem.
        place: Place,
        uuid: String,
        filesystem: String,
        mount_point: String,
        options: Vec<String>,
    },
    /// Create a directory at the top of the mounted filesystem for one of its places, like the
    /// directory at the place. An existing directory with files is not changed.
    MakeDirectory {
        mount_point: String,
        directory: String,
        path: String,
        /// Whether to copy the files at the place, and verify the copy.
        copy: bool,
        /// Owner and mode, if they differ from those of the directory at the place.
        owner: Option<Owner>,
    },
    /// Bind-mount a directory of the mounted filesystem at its place.
    Bind {
        /// Device with the filesystem.
        place: Place,
        mount_point: String,
        directory: String,
        path: String,
    },
    /// Record in the journal a bind mount that the agent did not make.
    #[serde(rename = "rememberBind")]
    RecordBind { directory: String, path: String },
    /// Activate swap by UUID.
    SwapOn {
        /// Device with the swap area.
        place: Place,
        uuid: String,
        /// Options, e.g. `discard`, `pri=10`.
        options: Vec<String>,
    },
    /// Record in the journal a disk in use that the agent did not mount or activate.
    #[serde(rename = "remember")]
    RecordUse {
        /// Device with the filesystem.
        place: Place,
        uuid: String,
        filesystem: String,
    },
    /// Change mount options of a mounted filesystem that can be changed while it is in use.
    Remount {
        /// Device with the filesystem.
        place: Place,
        mount_point: String,
        /// All mount flags after the change, and the changed options of the filesystem.
        options: Vec<String>,
    },
    /// Grow the LUKS mapping to the size of its disk.
    GrowMapping {
        /// Name in `/dev/mapper`.
        mapping: String,
        /// Keys of the container.
        encryption: Encryption,
    },
    /// Grow the mounted filesystem to the size of its device.
    Grow {
        /// Device with the filesystem.
        place: Place,
        filesystem: String,
        mount_point: String,
        /// Current size in bytes.
        from: u64,
        /// Size of the device in bytes.
        to: u64,
    },
    /// Set owner and mode of the root directory of the mounted filesystem.
    Own { mount_point: String, owner: Owner },
}

impl DiskStep {
    /// Name of the step in the plan, in the audit record and of its fail point.
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
            Self::RecordBind { .. } => "remember-bind",
            Self::SwapOn { .. } => "swap-on",
            Self::RecordUse { .. } => "remember",
            Self::Remount { .. } => "remount",
            Self::GrowMapping { .. } => "grow-mapping",
            Self::Grow { .. } => "grow",
            Self::Own { .. } => "own",
        }
    }

    /// Whether the step makes an irreversible change to a device.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum RefusalKind {
    /// No disk matches. A disk that is not required may be plugged in later, so this is no refusal
    /// for it.
    Missing,
    /// Only a disk that came later than the first boot matches by size, order or path. It may be a
    /// volume of a CSI driver.
    CameLater,
    /// Two or more disks match.
    Ambiguous,
    /// Two declared disks match one device.
    ClaimedTwice,
    /// The device has the system, is read-only, too small, or of a kind that is never formatted.
    NotEligible,
    /// The device is mounted, active swap, partitioned, or used by another device.
    InUse,
    /// The device has other data than declared.
    ForeignData,
    /// The disk is declared with `content: image-clone` but not proven to be an untouched clone.
    NotAClone,
    /// The device has data that no tool recognises.
    UnknownData,
    /// The content cannot be determined.
    Unreadable,
    /// The disk was formatted before and is blank now: replaced, or its data is lost.
    BlankAgain,
    /// A `mkfs` was started and not finished, and other content than its own cannot be excluded.
    Unfinished,
    /// The disk is large and was read only in part; the part is blank.
    PartlyProven,
    /// It may be shared with another VM.
    MaybeShared,
    /// Two devices have the same filesystem UUID.
    DuplicateUuid,
    SeveralDevices,
    /// Files are below the mount point, or another filesystem is mounted at or above it.
    MountPointTaken,
    /// The journal is unreadable, read-only, or on the disk itself.
    NoJournal,
    NoTool,
    /// The key is missing or does not open the container.
    NoKey,
    /// The settings of this disk are invalid.
    Settings,
}

impl RefusalKind {
    /// Whether an admin may approve the refusal after checking the evidence. Never for content that
    /// a tool recognises.
    pub fn may_be_approved(self) -> bool {
        matches!(
            self,
            Self::CameLater | Self::UnknownData | Self::BlankAgain | Self::Unfinished | Self::PartlyProven
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    pub kind: RefusalKind,
    /// Device, if one matched.
    pub device: Option<DeviceId>,
    /// One sentence with what was found and where.
    pub message: String,
    pub remedy: String,
    /// Evidence by name.
    pub facts: Vec<(String, String)>,
    /// SHA-256 in hex over kind, device and facts, for `disks approve`. Empty if it cannot be
    /// approved.
    pub evidence: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskPlan {
    pub name: String,
    /// Key by which the device was matched; `None` without a match.
    pub key: Option<Key>,
    /// Device; `None` if none or several match.
    pub device: Option<DeviceId>,
    /// Steps in order; empty if everything is as requested.
    pub steps: Vec<DiskStep>,
    /// Reasons why nothing, or not everything, is done. Steps that are safe nevertheless remain.
    pub refusals: Vec<Refusal>,
    /// Notes for the admin, e.g. that the filesystem is smaller than the disk and `grow` is off.
    pub notes: Vec<String>,
}

/// Plan for all declared disks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Plans in the order of the settings.
    pub disks: Vec<DiskPlan>,
    /// Steps that belong to no disk: the start gate of containerd and kubelet.
    pub common: Vec<DiskStep>,
}

impl Plan {
    /// Whether everything is as requested.
    pub fn is_empty(&self) -> bool {
        self.common.is_empty() && self.disks.iter().all(|disk| disk.steps.is_empty())
    }

    /// Whether both plans have the same steps for the same reasons. The progress of a timed proof
    /// and the notes are ignored, but not whether the whole disk was read.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.comparable() == other.comparable()
    }

    fn comparable(&self) -> Self {
        let mut plan = self.clone();
        for disk in &mut plan.disks {
            disk.notes.clear();
            for step in &mut disk.steps {
                match step {
                    DiskStep::ClearUnfinished(intent)
                    | DiskStep::Format(intent)
                    | DiskStep::Encrypt { intent, .. }
                    | DiskStep::FormatMapped { intent, .. } => intent.evidence.forget_reading(),
                    DiskStep::EraseClone(intent) => intent.proof.forget_reading(),
                    _ => {}
                }
            }
        }
        plan
    }
}
