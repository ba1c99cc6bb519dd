//! `disks`: what the VM's secondary disks are to become.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One secondary disk. Only disks that are named here are ever touched; a disk is formatted only
/// when it is proven blank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "settings: each is a switch of its own"
)]
pub struct DiskSettings {
    /// Names the disk, here and for good: the filesystem's UUID is made from it and from the VM's
    /// UUID. Lower-case letters, digits and `-`, at most 40.
    pub name: String,
    /// Which disk it is. Exactly one must match.
    #[serde(rename = "match")]
    pub matching: DiskMatch,
    /// What it is formatted with when it is blank. Data that is there already is mounted when it is
    /// of this kind, and refused when not.
    pub filesystem: DiskFilesystem,
    /// Where it is mounted: an absolute path. Absent for swap, or to format and not to mount.
    pub mount_point: Option<String>,
    /// Instead of `mountPoint`: several places that share the filesystem, at most 16. The
    /// filesystem is mounted where root alone may look, and a directory of it at each place.
    pub places: Vec<DiskPlace>,
    /// Mount options, e.g. `noatime`. For swap: `discard`, `pri=10`.
    pub options: Vec<String>,
    /// Owner and mode of the mounted filesystem's root. Absent: left as they are.
    pub owner: Option<DiskOwner>,
    /// What to do with files that lie under the mount point when the disk is new.
    pub seed_from: SeedFrom,
    /// Grow the filesystem when the disk has grown. Nothing is ever shrunk.
    pub grow: bool,
    /// The disk is new and blank at each start of the VM (KubeVirt's `emptyDisk`): formatted again
    /// although it was formatted before.
    pub ephemeral: bool,
    /// Without it containerd and kubelet do not start, so that they never write to the root disk in
    /// its place.
    pub required: bool,
    /// Another VM may have this disk too (ReadWriteMany block volumes). Refused unless it has data
    /// already; a guest cannot see sharing.
    pub shared: bool,
    /// What the disk may hold when it arrives and nothing of it is used yet. `image-clone` lets the
    /// agent erase a proven, untouched clone of this VM's own OS image, as KKP attaches it.
    pub content: DiskContent,
    /// How much of a disk is read before it counts as blank.
    pub proof: ProofKind,
    /// With `proof: timed`: for how many seconds the disk is read, 1 to 180. Default 20.
    pub proof_seconds: Option<u32>,
    /// A blank disk larger than this that was not read whole is formatted only after an approval,
    /// unless it is declared as `new`. A size such as `1Ti` (the default).
    pub approve_above: Option<String>,
    /// The disk is known to be new, e.g. from a KubeVirt DataVolume with `source: blank`, or a PVC
    /// that was created after the VM: it needs no approval because of its size. It is read as any
    /// other disk.
    pub new: bool,
    /// The filesystem's label. At most 16 bytes for ext4 and swap, 12 for xfs, 255 for btrfs.
    pub label: Option<String>,
    /// Blocks that only root may use, in percent (ext4 only). Default 0.
    pub reserved_percent: Option<u8>,
    /// Further arguments of `mkfs`. None that force, and none that name a device.
    pub mkfs_options: Vec<String>,
    /// Give blocks that are no longer used back to the volume, weekly.
    pub discard: bool,
    /// Encryption at rest.
    pub encryption: Option<DiskEncryption>,
}

impl DiskSettings {
    /// The defaults of a disk with a name and nothing else.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }
}

/// Which disk: what is given must all fit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DiskMatch {
    /// The disk's serial in the VM's spec. A virtio disk shows its first 20 bytes only; these are
    /// compared then.
    pub serial: Option<String>,
    /// The volume's name in the VM's spec, as a SCSI disk without serial shows it.
    pub volume: Option<String>,
    /// A name in `/dev/disk/by-path`, e.g. `pci-0000:09:00.0`, or a pattern with `*`.
    pub path: Option<String>,
    /// The exact size, e.g. `100Gi` or a number of bytes.
    pub size: Option<String>,
    /// PARTUUID of a partition: a GPT partition GUID, or `xxxxxxxx-NN` for MBR. The partition is
    /// then the declared disk; `serial`, `volume`, `path` and `size` say which disk it is on.
    /// Copies of a disk carry the same PARTUUIDs.
    pub part_uuid: Option<String>,
    /// Name of a partition in a GPT table (PARTLABEL). Like `partUuid`; both may be given.
    pub part_label: Option<String>,
    /// Which one, from 1, of the disks that fit the rest and that no other entry claims, in the
    /// order of their PCI addresses. Needs `allowPositional`.
    pub order: Option<u32>,
    /// Accept a disk by size and order alone. A disk that comes or goes may shift the order: only
    /// for platforms that give no serial.
    pub allow_positional: bool,
}

/// What a disk is formatted with.
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
    /// As `blkid` and `mount` name it.
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

/// A directory of a declared disk's filesystem, and where it is mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DiskPlace {
    /// Where the directory is mounted: an absolute path, outside of every other place and mount
    /// point.
    pub path: String,
    /// Name of the directory at the top of the filesystem. Absent: made from `path`, e.g.
    /// `var-lib-kubelet`.
    pub directory: Option<String>,
    /// Owner and mode of the directory. What is absent is taken from the directory that lies at
    /// `path` when the disk is new.
    pub owner: Option<DiskOwner>,
}

/// What to do with files that lie under the mount point when the disk is new.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SeedFrom {
    /// Refuse to mount over them: they would be hidden.
    #[default]
    None,
    /// Copy them to the disk, compare, and mount then. The originals stay, hidden.
    Existing,
}

/// What a disk holds when it arrives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiskContent {
    /// Nothing: only a disk that is proven blank is formatted.
    #[default]
    Blank,
    /// Nothing, or a clone of the OS image that this VM was installed from. The clone is erased
    /// only when it is proven to be untouched since it was cloned: same partition table and
    /// filesystems as the root disk, never mounted, nothing else on it.
    ImageClone,
}

/// How much of a disk is read before it counts as blank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProofKind {
    /// All that `sampled` reads, and then as much of the rest as can be read in `proofSeconds`.
    #[default]
    Timed,
    /// A bounded part: both ends, every place where a filesystem or volume format keeps a
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

/// LUKS2.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Luks2Settings {
    /// `tpm2`, or the absolute path of a file with the key, which root alone may read.
    pub key: String,
    /// The absolute path of a file with a second key, by which a person gets at the data when the
    /// first is lost. Mandatory with `tpm2`.
    pub recovery_key: Option<String>,
}
