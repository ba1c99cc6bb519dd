//! What was observed: everything that a plan is made from, besides the settings and the journal.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    clone::CloneState,
    device::{DevNumber, Device, DeviceId},
    probe::Probe,
    wanted::Owner,
};

/// One look at the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Seen {
    /// The VM's SMBIOS UUID; empty when there is none, and then nothing is formatted.
    pub vm_uuid: String,
    /// The boot.
    pub boot_id: String,
    /// Every whole disk.
    pub devices: Vec<Device>,
    /// What is on the disks that were matched, by the disk's name in the settings.
    pub probes: BTreeMap<String, Probe>,
    /// What was found out about disks declared with `content: image-clone` that are not blank, by the disk's name in the settings.
    pub clones: BTreeMap<String, CloneState>,
    /// Opened LUKS containers of ours, by their name in `/dev/mapper`.
    pub mappings: BTreeMap<String, Mapping>,
    /// What is mounted in the guest.
    pub mounts: Vec<Mounted>,
    /// What is swapped to.
    pub swaps: BTreeSet<DevNumber>,
    /// Declared mount points, by path.
    pub mount_points: BTreeMap<String, MountPoint>,
    /// Files below `/etc/systemd/system`, by path: all that carry one of our marks, and whatever lies where we would write
    /// ([`super::units::Placing::files`]); and `/etc/fstab` where there is no systemd.
    pub files: BTreeMap<String, String>,
    /// Every filesystem UUID that the guest's udev or blkid knows, and who carries it.
    pub uuids: BTreeMap<String, Vec<DeviceId>>,
    /// Whether systemd runs the guest.
    pub systemd: bool,
    /// Programs that were looked for and are not there, e.g. `mkfs.xfs`.
    pub missing_tools: BTreeSet<String>,
    /// Key files, by path, that were looked for and cannot be used, with the reason; `tpm2` for the guest's TPM.
    pub bad_keys: BTreeMap<String, String>,
    /// Users that the settings name, by name.
    pub users: BTreeMap<String, u32>,
    /// Groups that the settings name, by name.
    pub groups: BTreeMap<String, u32>,
    /// The path of the agent's program, which the gate runs; empty: where a package puts it.
    pub agent: String,
    /// The kernel's command line asks to boot without the gate: `virtfleet.disks=optional`.
    pub gate_off: bool,
}

/// An opened LUKS container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mapping {
    /// Its number.
    pub number: DevNumber,
    /// The header's UUID.
    pub luks_uuid: String,
    /// Its size in bytes.
    pub size: u64,
    /// What it could be: the disk's size without the header.
    pub could_be: u64,
    /// What is in it. Bytes that nobody knows are to be expected in a new one.
    pub probe: Probe,
}

/// A mount in the first process's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mounted {
    /// Where.
    pub mount_point: String,
    /// The device; for btrfs, whose mounts have numbers of their own, that of its source.
    pub number: DevNumber,
    /// The path within the filesystem; `/` but for bind mounts and subvolumes.
    pub root: String,
    /// Its kind.
    pub filesystem: String,
    /// Mount options and those of the superblock.
    pub options: Vec<String>,
    /// The filesystem's size in bytes as its own tool says it; none when it was not asked.
    pub filesystem_bytes: Option<u64>,
    /// Owner and mode of its root, in numbers.
    pub owner: Option<Owner>,
}

/// A declared mount point.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MountPoint {
    /// Whether the directory is there.
    pub exists: bool,
    /// Whether it is something else than a directory, or a symbolic link leads to it.
    pub unusable: Option<String>,
    /// How many entries lie in it, when nothing is mounted there; counted up to 1,000.
    pub entries: u64,
    /// Processes that have files open below it, when nothing is mounted there: `name (pid)`.
    pub busy: Vec<String>,
}
