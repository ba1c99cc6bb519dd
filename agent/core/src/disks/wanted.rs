//! Declared disk with checked settings.

pub use super::owner::Owner;
use std::fmt;

use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::{DiskContent, DiskFilesystem, ProofKind, SeedFrom};

use super::binds::Bind;
pub use super::check::check;

/// Key by which a declared disk is matched, also by the journal after a reboot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "by", content = "is")]
pub enum Key {
    /// The serial as the guest sees it.
    Serial(String),
    Volume(String),
    /// Name in `/dev/disk/by-path`.
    Path(String),
    /// PARTUUID of a partition, in lower case.
    PartUuid(String),
    /// PARTLABEL of a partition, if the settings have no PARTUUID.
    PartLabel(String),
    /// UUID that the agent assigned: a disk that was declared by size and order, and has moved or
    /// grown since.
    Uuid(String),
    /// Size in bytes, and position among disks of that size, from 1.
    Position {
        /// Size in bytes.
        size: u64,
        /// Position, from 1.
        order: u32,
    },
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serial(serial) => write!(f, "serial {serial}"),
            Self::Volume(volume) => write!(f, "volume {volume}"),
            Self::Path(path) => write!(f, "path {path}"),
            Self::PartUuid(uuid) => write!(f, "PARTUUID {uuid}"),
            Self::PartLabel(label) => write!(f, "PARTLABEL {label}"),
            // The evidence hash of an approval contains this text: another text voids approvals.
            Self::Uuid(uuid) => write!(f, "UUID {uuid}, which we gave it"),
            Self::Position { size, order } => write!(f, "disk {order} of {size} bytes"),
        }
    }
}

/// Source of the key of an encrypted disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "from", content = "path")]
pub enum KeySource {
    File(String),
    /// The guest's TPM 2.0.
    Tpm2,
}

/// Requested LUKS2 encryption.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Encryption {
    /// Key that opens the container at boot.
    pub key: KeySource,
    /// File with the recovery key; always present with a TPM.
    pub recovery: Option<String>,
}

/// Declared disk with valid settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Wanted {
    pub name: String,
    /// Required serial, see [`virtfleet_wire::settings::DiskMatch::serial`].
    pub serial: Option<String>,
    /// See [`virtfleet_wire::settings::DiskMatch::volume`].
    pub volume: Option<String>,
    /// See [`virtfleet_wire::settings::DiskMatch::path`].
    pub path: Option<String>,
    /// Required size in bytes.
    pub size: Option<u64>,
    /// Position among disks of that size, from 1.
    pub order: Option<u32>,
    /// PARTUUID in lower case, if the disk is a partition.
    pub part_uuid: Option<String>,
    /// PARTLABEL, if the disk is a partition.
    pub part_label: Option<String>,
    /// Filesystem to make.
    pub filesystem: DiskFilesystem,
    /// Absolute, normalised path (no `.`, `..`, `//` or trailing slash), never `/`.
    ///
    /// With [`Self::binds`] it is [`super::binds::private_mount_point`].
    pub mount_point: Option<String>,
    /// Directories of the filesystem that are bind-mounted at places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binds: Vec<Bind>,
    /// Mount options, or swap options.
    pub options: Vec<String>,
    /// Owner and mode of the root directory of the filesystem.
    pub owner: Option<Owner>,
    /// What to do with files below the mount point.
    pub seed_from: SeedFrom,
    /// Whether the filesystem grows with the disk.
    pub grow: bool,
    /// Whether the disk is new at each start of the VM.
    pub ephemeral: bool,
    /// Whether containerd and kubelet wait for it.
    pub required: bool,
    /// Whether another VM may use it, too.
    pub shared: bool,
    /// Content that the disk may have initially.
    #[serde(default)]
    pub content: DiskContent,
    /// Kind of proof that it is blank.
    pub proof: ProofKind,
    /// Maximum reading time with [`ProofKind::Timed`] in seconds.
    pub proof_seconds: u32,
    /// Size in bytes above which a blank disk that was read only in part needs an approval.
    pub approve_above: u64,
    /// Whether the admin guarantees that it is new.
    pub new: bool,
    pub label: Option<String>,
    /// Reserved blocks of ext4 in percent.
    pub reserved_percent: Option<u8>,
    /// Additional arguments of mkfs.
    pub mkfs_options: Vec<String>,
    /// Whether unused blocks are discarded.
    pub discard: bool,
    /// LUKS2 encryption.
    pub encryption: Option<Encryption>,
}

impl Wanted {
    /// Whether it is matched only by size and order, so that data on the disk does not prove its
    /// identity.
    pub fn is_positional(&self) -> bool {
        let named = self.serial.is_some() || self.volume.is_some() || self.path.is_some();
        self.order.is_some() || !(named || self.names_partition())
    }

    /// Returns all paths at which it is mounted: the whole filesystem first, then its places.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let binds = self.binds.iter().map(|bind| bind.path.as_str());
        self.mount_point.as_deref().into_iter().chain(binds)
    }

    /// Returns the owners in the settings.
    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        let binds = self.binds.iter().filter_map(|bind| bind.owner.as_ref());
        self.owner.iter().chain(binds)
    }

    /// Whether it is a partition, named by PARTUUID or PARTLABEL. The rest of `match` then
    /// describes the whole disk.
    pub fn names_partition(&self) -> bool {
        self.part_uuid.is_some() || self.part_label.is_some()
    }

    /// Describes the conditions in `match`.
    pub fn conditions(&self) -> String {
        let text = |word: &str, value: &Option<String>| value.as_ref().map(|value| format!("{word} {value}"));
        let parts = [
            text("PARTUUID", &self.part_uuid),
            text("PARTLABEL", &self.part_label),
            text("serial", &self.serial),
            text("volume", &self.volume),
            text("path", &self.path),
            self.size.map(|size| format!("size {size} bytes")),
            self.order.map(|order| format!("order {order}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        parts.join(", ")
    }
}

/// Invalid setting, with the key below `disks`, e.g. `disks[data].mountPoint`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{path}: {message}")]
pub struct WantedProblem {
    /// Name of the disk; empty if it concerns all disks.
    pub disk: String,
    /// Whether containerd and kubelet wait for that disk: invalid settings must not let them start.
    pub required: bool,
    /// Key of the setting.
    pub path: String,
    /// What is wrong, and what is valid.
    pub message: String,
}

impl WantedProblem {
    /// Name of the plan that reports it: the disk's, or `*`, which is not a valid disk name.
    pub fn plan(&self) -> &str {
        if self.disk.is_empty() { "*" } else { &self.disk }
    }
}
