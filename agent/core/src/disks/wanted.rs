//! A declared disk after its settings were checked.

use std::fmt;

use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::{DiskContent, DiskFilesystem, ProofKind, SeedFrom};

use super::binds::Bind;
pub use super::check::check;

/// By what a declared disk is found, and by what the journal knows it again after a reboot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "by", content = "is")]
pub enum Key {
    /// The serial as the guest sees it.
    Serial(String),
    /// The volume's name.
    Volume(String),
    /// A name in `/dev/disk/by-path`.
    Path(String),
    /// PARTUUID of a partition, in lower case.
    PartUuid(String),
    /// PARTLABEL of a partition, where the settings give no PARTUUID.
    PartLabel(String),
    /// The UUID that we gave it: a disk that is asked for by size and order, and has moved or grown since.
    Uuid(String),
    /// Size in bytes and place among the equal ones, from 1.
    Position {
        /// Bytes.
        size: u64,
        /// From 1.
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
            Self::Uuid(uuid) => write!(f, "UUID {uuid}, which we gave it"),
            Self::Position { size, order } => write!(f, "disk {order} of {size} bytes"),
        }
    }
}

/// Where the key of an encrypted disk comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "from", content = "path")]
pub enum KeySource {
    /// A file.
    File(String),
    /// The guest's TPM 2.0.
    Tpm2,
}

/// LUKS2 as asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Encryption {
    /// The key by which it is opened at boot.
    pub key: KeySource,
    /// The file with the recovery key; always there with a TPM.
    pub recovery: Option<String>,
}

/// Numbers or names for chown(2), and a mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// User: a name or a number.
    pub user: Option<String>,
    /// Group: a name or a number.
    pub group: Option<String>,
    /// Permission bits.
    pub mode: Option<u32>,
}

/// A declared disk whose settings make sense.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Wanted {
    /// Its name in the settings.
    pub name: String,
    /// What must fit, as in the settings; sizes parsed.
    pub serial: Option<String>,
    /// See [`virtfleet_wire::settings::DiskMatch::volume`].
    pub volume: Option<String>,
    /// See [`virtfleet_wire::settings::DiskMatch::path`].
    pub path: Option<String>,
    /// In bytes.
    pub size: Option<u64>,
    /// From 1.
    pub order: Option<u32>,
    /// PARTUUID in lower case: the disk is this partition.
    pub part_uuid: Option<String>,
    /// PARTLABEL: the disk is the partition of this name.
    pub part_label: Option<String>,
    /// What it becomes.
    pub filesystem: DiskFilesystem,
    /// Absolute, normal (no `.`, `..`, `//` or trailing slash), never `/`.
    ///
    /// With [`Self::binds`] it is [`super::binds::private_mount_point`].
    pub mount_point: Option<String>,
    /// Directories of the filesystem that are mounted at places of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binds: Vec<Bind>,
    /// Mount options, or swap's.
    pub options: Vec<String>,
    /// Owner and mode of the root of the filesystem.
    pub owner: Option<Owner>,
    /// What to do with what lies under the mount point.
    pub seed_from: SeedFrom,
    /// Whether it grows.
    pub grow: bool,
    /// Whether it is new at each start.
    pub ephemeral: bool,
    /// Whether containerd and kubelet wait for it.
    pub required: bool,
    /// Whether another VM may have it too.
    pub shared: bool,
    /// What it may hold when it arrives.
    #[serde(default)]
    pub content: DiskContent,
    /// What is read before it counts as blank.
    pub proof: ProofKind,
    /// For how many seconds it is read with [`ProofKind::Timed`].
    pub proof_seconds: u32,
    /// In bytes: a larger blank disk that was not read whole needs an approval.
    pub approve_above: u64,
    /// It is vouched for as new.
    pub new: bool,
    /// The filesystem's label.
    pub label: Option<String>,
    /// Percent, ext4.
    pub reserved_percent: Option<u8>,
    /// Further arguments of mkfs.
    pub mkfs_options: Vec<String>,
    /// Whether unused blocks are given back.
    pub discard: bool,
    /// LUKS2.
    pub encryption: Option<Encryption>,
}

impl Wanted {
    /// Whether it is found by size and order alone, so that data on the disk is no proof that it is the one that was meant.
    pub fn is_positional(&self) -> bool {
        let named = self.serial.is_some() || self.volume.is_some() || self.path.is_some();
        self.order.is_some() || !(named || self.names_partition())
    }

    /// Every path at which it is mounted: the whole of it first, then its places.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let binds = self.binds.iter().map(|bind| bind.path.as_str());
        self.mount_point.as_deref().into_iter().chain(binds)
    }

    /// The owners that the settings give.
    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        let binds = self.binds.iter().filter_map(|bind| bind.owner.as_ref());
        self.owner.iter().chain(binds)
    }

    /// Whether it is a partition, named by PARTUUID or PARTLABEL. The rest of `match` then describes the whole disk.
    pub fn names_partition(&self) -> bool {
        self.part_uuid.is_some() || self.part_label.is_some()
    }

    /// What must fit, in words.
    pub fn asked_for(&self) -> String {
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

/// Something in the settings that makes no sense, with the key below `disks`, e.g. `disks[data].mountPoint`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{path}: {message}")]
pub struct WantedProblem {
    /// The disk's name; empty when it is about all of them.
    pub disk: String,
    /// Whether containerd and kubelet wait for that disk: they must not start because its settings are wrong.
    pub required: bool,
    /// The key.
    pub path: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl WantedProblem {
    /// The name of the plan that says so: the disk's, or `*`, which no disk has.
    pub fn plan(&self) -> &str {
        if self.disk.is_empty() { "*" } else { &self.disk }
    }
}
