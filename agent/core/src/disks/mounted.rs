//! A mount of a disk.

use super::{device::DevNumber, wanted::Owner};
use serde::{Deserialize, Serialize};

/// Mount in the first process's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mounted {
    pub mount_point: String,
    /// Device number; for btrfs, whose mounts have other numbers, that of the source device.
    pub number: DevNumber,
    /// Path within the filesystem; `/` except for bind mounts and subvolumes.
    pub root: String,
    pub filesystem: String,
    /// Mount options and superblock options.
    pub options: Vec<String>,
    /// Size of the filesystem in bytes according to its tool; `None` if the tool did not run.
    pub filesystem_bytes: Option<u64>,
    /// Owner and mode of its root directory, as numbers.
    pub owner: Option<Owner>,
}
