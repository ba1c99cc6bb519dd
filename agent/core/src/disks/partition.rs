//! Partitions that the settings name: position, table entry, and whether their type permits their
//! use.

use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::DiskFilesystem;

use super::{device::DevNumber, wanted::Wanted};

/// GPT type of a partition for a Linux filesystem (UAPI Discoverable Partitions Specification,
/// "generic Linux data").
pub const LINUX_DATA: &str = "0fc63daf-8483-4772-8e79-3d69d8477de4";
/// MBR type of a partition for a Linux filesystem, as blkid(8) prints it.
pub const MBR_LINUX: &str = "0x83";
/// Types of partitions for swap: GPT, MBR.
const SWAP: [&str; 2] = ["0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", "0x82"];
/// Types of partitions for a LUKS container: GPT (the same specification), MBR.
const LUKS: [&str; 2] = ["ca7d7ccb-63ed-4c53-861c-1742536059cc", "0xe8"];
/// GPT types that imply a mount point (same specification). systemd mounts them there on the root
/// disk.
const PLACES: [(&str, &str); 2] = [
    ("933ac7e1-2eb4-4f13-b844-0e14e2aef915", "/home"),
    ("3b8f8425-20e0-4f3b-907f-1a25a76f98e8", "/srv"),
];
/// GPT attribute (UEFI 2.10, table 5.8): the platform needs the partition.
const REQUIRED: u64 = 1;
/// GPT attribute of data partitions (Discoverable Partitions Specification): mount it read-only.
const READ_ONLY: u64 = 1 << 60;

/// Position of a partition, and its entry in the partition table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Partition {
    /// Kernel name of its disk, e.g. `vda`.
    pub disk: String,
    pub disk_number: DevNumber,
    /// Partition number, from 1.
    pub index: u32,
    /// First byte on the disk.
    pub start: u64,
    /// PARTUUID in lower case: a GPT partition GUID, or `xxxxxxxx-NN` for MBR. `None` until udev
    /// has read the table.
    pub uuid: Option<String>,
    /// PARTLABEL: its name in a GPT table.
    pub label: Option<String>,
    /// Type: a GPT type GUID in lower case, or an MBR type such as `0x83`. Empty if unknown.
    pub kind: String,
    /// GPT attributes; 0 for MBR.
    pub attributes: u64,
}

impl Partition {
    /// Whether it has the requested PARTUUID and PARTLABEL.
    pub fn is_named_by(&self, disk: &Wanted) -> bool {
        let uuid = disk.part_uuid.as_ref();
        let label = disk.part_label.as_ref();
        disk.names_partition()
            && uuid.is_none_or(|uuid| self.uuid.as_ref() == Some(uuid))
            && label.is_none_or(|label| self.label.as_ref() == Some(label))
    }

    /// Returns why its type or its attributes forbid the declared use, if so.
    ///
    /// Only types that stand for the declared use are accepted. Any other type marks the partition
    /// as used by another program: firmware, boot loader, LVM, RAID, an updater of the OS image.
    pub fn objection(&self, disk: &Wanted) -> Option<String> {
        if self.attributes & REQUIRED != 0 {
            return Some("its GPT attributes mark it as required by the platform (bit 0)".to_owned());
        }
        if self.attributes & READ_ONLY != 0 {
            return Some("its GPT attributes mark it as read-only (bit 60)".to_owned());
        }
        let kind = self.kind.as_str();
        let data = [LINUX_DATA, MBR_LINUX].contains(&kind);
        let swap = disk.filesystem == DiskFilesystem::Swap && SWAP.contains(&kind);
        let luks = disk.encryption.is_some() && LUKS.contains(&kind);
        let place = PLACES
            .iter()
            .any(|(known, at)| *known == kind && disk.mount_point.as_deref() == Some(*at));
        if data || swap || luks || place {
            return None;
        }
        Some(if kind.is_empty() {
            "its type is unknown".to_owned()
        } else {
            format!("its partition type {kind} does not stand for {}", use_of(disk))
        })
    }
}

fn use_of(disk: &Wanted) -> &'static str {
    match (&disk.encryption, disk.filesystem) {
        (Some(_), _) => "a LUKS container",
        (None, DiskFilesystem::Swap) => "swap",
        (None, _) => "a Linux filesystem",
    }
}

/// Returns the problem with a PARTUUID in the settings, if any.
pub(super) fn uuid_objection(uuid: &str) -> Option<String> {
    let groups: Vec<&str> = uuid.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let hex = groups
        .iter()
        .all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let known = lengths == [8, 4, 4, 4, 12] || lengths == [8, 2];
    if !hex || !known {
        return Some(format!(
            "{uuid:?} is not a PARTUUID; use a GPT partition GUID such as 0fc63daf-8483-4772-8e79-3d69d8477de4, or \
             xxxxxxxx-NN for MBR, as `lsblk -o NAME,PARTUUID` prints it"
        ));
    }
    let zero = |text: &str| text.bytes().all(|byte| byte == b'0');
    let unset = if lengths.len() == 2 {
        zero(groups[0])
    } else {
        groups.iter().all(|group| zero(group))
    };
    unset.then(|| {
        format!("{uuid:?} identifies no disk: a table without an identifier shows zeros; set one (`sfdisk --disk-id`)")
    })
}

/// Returns the problem with a PARTLABEL in the settings, if any.
pub(super) fn label_objection(label: &str) -> Option<String> {
    // UEFI 2.10, table 5.6: 36 UTF-16 units.
    const MAX_UNITS: usize = 36;
    let printable = label.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    let edges = label.trim() != label;
    (label.is_empty() || label.len() > MAX_UNITS || !printable || edges).then(|| {
        format!(
            "{label:?} is not a valid PARTLABEL: use 1 to {MAX_UNITS} printable ASCII characters, without spaces around them"
        )
    })
}

#[cfg(test)]
mod tests;
