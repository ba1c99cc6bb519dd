//! `disks`: secondary disks of the VM, and their desired filesystems and mounts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One secondary disk. The agent changes only disks that are listed here. It formats a disk only if
/// the disk is proven blank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "settings: each is an independent switch"
)]
pub struct DiskSettings {
    /// Name of the disk. It must never change: the filesystem's UUID is derived from it and from
    /// the VM's UUID. Lower-case letters, digits and `-`, at most 40.
    pub name: String,
    /// Selects the disk. Exactly one disk must match.
    #[serde(rename = "match")]
    pub matching: DiskMatch,
    /// Filesystem for a blank disk. Existing data is mounted if it has this filesystem; the agent
    /// refuses a disk with any other data.
    pub filesystem: DiskFilesystem,
    /// Mount point: an absolute path. Absent for swap, or if the disk is formatted and not mounted.
    pub mount_point: Option<String>,
    /// Alternative to `mountPoint`: up to 16 places that share the filesystem. The filesystem is
    /// mounted where only root has access, and one of its directories is mounted at each place.
    pub places: Vec<DiskPlace>,
    /// Mount options, e.g. `noatime`. For swap: `discard`, `pri=10`.
    pub options: Vec<String>,
    /// Owner and mode of the mounted filesystem's root. Absent: not changed.
    pub owner: Option<DiskOwner>,
    /// What to do with files under the mount point if the disk is new.
    pub seed_from: SeedFrom,
    /// Grow the filesystem when the disk has grown. The agent never shrinks one.
    pub grow: bool,
    /// The disk is new and blank at each start of the VM (KubeVirt's `emptyDisk`). The agent
    /// formats it again although it formatted it before.
    pub ephemeral: bool,
    /// containerd and kubelet do not start without this disk, so that they never write to the root
    /// disk in its place.
    pub required: bool,
    /// Another VM may use this disk at the same time (ReadWriteMany block volumes). A guest cannot
    /// detect this, so the agent refuses the disk unless it already has data.
    pub shared: bool,
    /// Permitted content of the disk before its first use. With `image-clone` the agent may erase a
    /// proven, untouched clone of this VM's own OS image, as KKP attaches it.
    pub content: DiskContent,
    /// How much of a disk the agent reads before the disk counts as blank.
    pub proof: ProofKind,
    /// Time for which the agent reads the disk with `proof: timed`, in seconds, 1 to 180. Default
    /// 20.
    pub proof_seconds: Option<u32>,
    /// Size above which a blank disk that was not read completely needs an approval before it is
    /// formatted, unless it is declared as `new`. A size such as `1Ti` (the default).
    pub approve_above: Option<String>,
    /// The disk is known to be new, e.g. from a KubeVirt DataVolume with `source: blank`, or a PVC
    /// that was created after the VM. It then needs no approval because of its size. The agent
    /// reads it like any other disk.
    pub new: bool,
    /// Label of the filesystem. At most 16 bytes for ext4 and swap, 12 for xfs, 255 for btrfs.
    pub label: Option<String>,
    /// Blocks reserved for root, in percent (ext4 only). Default 0.
    pub reserved_percent: Option<u8>,
    /// Additional arguments of `mkfs`. Arguments that force formatting or name a device are
    /// rejected.
    pub mkfs_options: Vec<String>,
    /// Discard unused blocks weekly, so that the volume can free them.
    pub discard: bool,
    /// Encryption at rest.
    pub encryption: Option<DiskEncryption>,
}

impl DiskSettings {
    /// A disk with this name and default values.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }
}

/// Selects a disk. All fields that are set must match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DiskMatch {
    /// The disk's serial in the VM's spec. A virtio disk shows only the first 20 bytes; then only
    /// these are compared.
    pub serial: Option<String>,
    /// Name of the volume in the VM's spec, as shown by a SCSI disk without a serial.
    pub volume: Option<String>,
    /// A name in `/dev/disk/by-path`, e.g. `pci-0000:09:00.0`, or a pattern with `*`. Without
    /// `serial` or `volume` it selects only disks that were there in the VM's first boot.
    pub path: Option<String>,
    /// Exact size, e.g. `100Gi` or a number of bytes.
    pub size: Option<String>,
    /// PARTUUID of a partition: a GPT partition GUID, or `xxxxxxxx-NN` for MBR. The partition is
    /// then the declared disk; `serial`, `volume`, `path` and `size` select the disk that contains
    /// it. Copies of a disk have the same PARTUUIDs.
    pub part_uuid: Option<String>,
    /// Name of a partition in a GPT table (PARTLABEL). Same use as `partUuid`; both may be set.
    pub part_label: Option<String>,
    /// Position, from 1, among the disks that match the other fields and that no other entry
    /// claims, in the order of their PCI addresses. Needs `allowPositional`.
    pub order: Option<u32>,
    /// Accept a disk that is selected only by size and order, among those that were there in the
    /// VM's first boot. An added or removed disk may change the order. Use this only on platforms
    /// that set no serial.
    pub allow_positional: bool,
}

/// Filesystem of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "their own names")]
pub enum DiskFilesystem {
    #[default]
    Ext4,
    Xfs,
    Btrfs,
    Swap,
}

impl DiskFilesystem {
    /// Name in `blkid` and `mount`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Swap => "swap",
        }
    }
}

/// Owner and mode of a mounted filesystem's root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DiskOwner {
    /// A name in `/etc/passwd`, or a number.
    pub user: Option<String>,
    /// A name in `/etc/group`, or a number.
    pub group: Option<String>,
    /// Octal, e.g. `"0711"`.
    pub mode: Option<String>,
}

/// A directory of a declared disk's filesystem, and its mount point.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DiskPlace {
    /// Mount point of the directory: an absolute path, outside of every other place and mount
    /// point.
    pub path: String,
    /// Name of the directory at the top level of the filesystem. Default: derived from `path`, e.g.
    /// `var-lib-kubelet`.
    pub directory: Option<String>,
    /// Owner and mode of the directory. Fields that are absent are copied from the directory at
    /// `path` when the disk is new.
    pub owner: Option<DiskOwner>,
}

/// What to do with files under the mount point if the disk is new.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SeedFrom {
    /// Refuse to mount: the mount would hide them.
    #[default]
    None,
    /// Copy them to the disk, compare the copies, then mount. The originals stay, hidden under the
    /// mount.
    Existing,
}

/// Permitted content of a disk before its first use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiskContent {
    /// No content: the agent formats only a disk that is proven blank.
    #[default]
    Blank,
    /// No content, or a clone of the OS image from which this VM was installed. The agent erases
    /// the clone only if it is proven to be unchanged since it was cloned: same partition table and
    /// filesystems as the root disk, never mounted, nothing else on it.
    ImageClone,
}

/// How much of a disk the agent reads before the disk counts as blank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProofKind {
    /// Everything that `sampled` reads, then as much of the rest as possible within `proofSeconds`.
    #[default]
    Timed,
    /// A limited part: both ends, every location where a filesystem or volume format has a
    /// superblock, and samples in between.
    Sampled,
    /// Every byte.
    Full,
}

/// Encryption at rest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DiskEncryption {
    /// LUKS2, by cryptsetup.
    pub luks2: Luks2Settings,
}

/// LUKS2 settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Luks2Settings {
    /// Key: `tpm2`, or the absolute path of a key file that only root can read.
    pub key: String,
    /// Absolute path of a file with a second key, with which an administrator can open the data if
    /// the first key is lost. Required with `tpm2`.
    pub recovery_key: Option<String>,
}
