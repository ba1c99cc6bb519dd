//! Observed state of the guest: the input of a plan besides settings and journal.

pub use super::mounted::Mounted;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    clone::CloneState,
    device::{DevNumber, Device, DeviceId},
    known::KnownDisks,
    probe::Probe,
};

/// Snapshot of the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Seen {
    /// SMBIOS UUID of the VM; empty if there is none, and then nothing is formatted.
    pub vm_uuid: String,
    pub boot_id: String,
    /// All whole disks.
    pub devices: Vec<Device>,
    /// The list of known disks that follows from it and from that in the journal.
    pub known_disks: KnownDisks,
    /// Probe results of matched disks, by name in the settings.
    pub probes: BTreeMap<String, Probe>,
    /// Results for disks declared with `content: image-clone` that are not blank, by name in the
    /// settings.
    pub clones: BTreeMap<String, CloneState>,
    /// Open LUKS containers of the agent, by name in `/dev/mapper`.
    pub mappings: BTreeMap<String, Mapping>,
    pub mounts: Vec<Mounted>,
    /// Devices of each mounted btrfs, by its UUID. They need not be in `devices`.
    pub btrfs: BTreeMap<String, BTreeSet<DevNumber>>,
    /// Devices in use as swap.
    pub swaps: BTreeSet<DevNumber>,
    /// Declared mount points, by path.
    pub mount_points: BTreeMap<String, MountPoint>,
    /// Files below `/etc/systemd/system` by path: all with a marker of the agent, and any file at a
    /// path that the agent would write ([`super::units::Placing::files`]). Without systemd, also
    /// `/etc/fstab`.
    pub files: BTreeMap<String, String>,
    /// Filesystem UUIDs that the guest's udev or blkid knows, with their devices.
    pub uuids: BTreeMap<String, Vec<DeviceId>>,
    /// Whether systemd manages the guest.
    pub systemd: bool,
    /// Required programs that are not installed, e.g. `mkfs.xfs`.
    pub missing_tools: BTreeSet<String>,
    /// Unusable key files by path, with the reason; `tpm2` stands for the guest's TPM.
    pub bad_keys: BTreeMap<String, String>,
    /// Ids of users in the settings, by name.
    pub users: BTreeMap<String, u32>,
    /// Ids of groups in the settings, by name.
    pub groups: BTreeMap<String, u32>,
    /// Path of the agent's program, which the start gate runs; empty for the path of the package.
    pub agent: String,
    /// Whether the kernel command line disables the start gate: `virtfleet.disks=optional`.
    pub gate_off: bool,
}

/// Open LUKS container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mapping {
    pub number: DevNumber,
    pub luks_uuid: String,
    /// Size in bytes.
    pub size: u64,
    /// Possible size in bytes: the size of the disk without the header.
    pub could_be: u64,
    /// Content. A new container has data that no tool recognises.
    pub probe: Probe,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MountPoint {
    /// Whether the directory exists.
    pub exists: bool,
    /// Problem, if it is not a directory or its path has a symbolic link.
    pub unusable: Option<String>,
    /// Number of entries in it, if nothing is mounted there; at most 1,000.
    pub entries: u64,
    /// Processes with open files below it, if nothing is mounted there: `name (pid)`.
    pub busy: Vec<String>,
}
