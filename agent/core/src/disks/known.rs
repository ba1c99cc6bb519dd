//! The disks that were there in the VM's first boot. All others came later.
//!
//! A CSI driver plugs blank volumes into a running VM and formats them itself. Many of them have no
//! serial, and their size may be that of a declared disk. Only the time tells them apart: a driver
//! plugs nothing into a VM in which no kubelet has run yet. So the list of known disks is open
//! until a kubelet has run, or the first boot has ended. A disk that is not on it never matches by
//! size, order or path ([`super::matching::csi`]).
//!
//! Each run, also one without a declared disk, compares the disks with the list
//! ([`KnownDisks::mark`]) and writes what is known now.
//! - Within a boot, a disk is known by its sequence number, which the kernel never assigns twice.
//! - In a later boot, it is known by its address, size and serial until a kubelet runs: from then
//!   on another disk may have taken the address.
//! - A UUID that the agent assigned, or that the journal has, is proof at any time and place.

mod mark;

use serde::{Deserialize, Serialize};

use super::device::{Carried, Device};

/// Disk that was there in the first boot, as the last run saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownDisk {
    /// [`address`].
    pub address: String,
    /// Serial as the guest sees it; `None` without one.
    pub serial: Option<String>,
    /// Size in bytes.
    pub size: u64,
    /// UUID on the disk, in lower case; `None` without one.
    pub uuid: Option<String>,
    /// Boot of the run that saw it last.
    pub boot_id: String,
    /// `BLKGETDISKSEQ` in that boot. `None` below Linux 5.15.
    pub diskseq: Option<u64>,
}

/// The list of known disks, as the journal has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownDisks {
    /// SMBIOS UUID of the VM. A clone of the VM begins a new list.
    pub vm_uuid: String,
    /// Boot of the last run. If it is not the current one, the list is no longer open.
    pub boot_id: String,
    /// Whether each disk that is there is added.
    pub open: bool,
    /// Whether a kubelet has run in this VM, or in the one of which it is a clone: its volumes may
    /// have been cloned with it.
    pub kubelet_ran: bool,
    /// The last boot in which a run saw a running kubelet.
    pub kubelet_boot: Option<String>,
    /// The disks, sorted by address.
    pub disks: Vec<KnownDisk>,
}

/// What the list depends on besides the disks.
#[derive(Debug, Clone, Copy)]
pub struct Boot<'a> {
    /// SMBIOS UUID of the VM.
    pub vm_uuid: &'a str,
    pub boot_id: &'a str,
    /// Whether a kubelet has run in this VM in any boot. This and `kubelet_runs` must be determined
    /// after the disks were listed: then no disk of the list can be a volume that a first kubelet
    /// requested.
    pub kubelet_ran: bool,
    /// Whether a kubelet runs now.
    pub kubelet_runs: bool,
}

impl KnownDisk {
    /// `before` has the UUID of a disk whose content is unknown now.
    fn of(device: &Device, boot_id: &str, before: &[Self]) -> Self {
        let address = address(device);
        let uuid = match &device.carried {
            Carried::Uuid(uuid) => Some(uuid.to_ascii_lowercase()),
            Carried::Nothing => None,
            Carried::Unknown => {
                let there = before.iter().find(|disk| disk.address == address);
                there.and_then(|disk| disk.uuid.clone())
            }
        };
        Self {
            address,
            serial: device.id.serial.clone(),
            size: device.id.size,
            uuid,
            boot_id: boot_id.to_owned(),
            diskseq: device.id.diskseq,
        }
    }
}

impl KnownDisks {
    /// The list with one more disk: an admin has approved it in this boot.
    #[must_use]
    pub fn with(mut self, device: &Device, boot_id: &str) -> Self {
        let approved = KnownDisk::of(device, boot_id, &[]);
        self.disks.retain(|disk| disk.address != approved.address);
        self.disks.push(approved);
        self.disks.sort_by(|one, other| one.address.cmp(&other.address));
        self
    }
}

/// Bus address of a disk: its path in `/sys/devices` without the numbers that each boot assigns
/// anew. Below other buses than PCI and virtio it is the whole path.
pub fn address(device: &Device) -> String {
    let path = &device.syspath;
    let path = path.strip_prefix("/sys/devices/").unwrap_or(path);
    if !path.split('/').any(is_slot) {
        return path.to_owned();
    }
    let parts = path.split('/').filter_map(|part| lasting(part, &device.id.name));
    parts.collect::<Vec<_>>().join("/")
}

/// Whether a part of the path names a device that has one place: a PCI function, or virtio.
fn is_slot(part: &str) -> bool {
    let function = part.split_once('.').map(|(left, _)| left.split(':').count());
    function == Some(3) || is_numbered(part, "virtio")
}

fn is_numbered(part: &str, word: &str) -> bool {
    let number = part.strip_prefix(word);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What remains of a part of the path of the disk with that kernel name.
fn lasting<'a>(part: &'a str, name: &str) -> Option<&'a str> {
    if part == name {
        // The namespace of an NVMe controller.
        let namespace = part.strip_prefix("nvme")?.rfind('n')?;
        return part.get("nvme".len() + namespace..);
    }
    // `host:channel:target:LUN`; the number of the host is assigned.
    if let Some((host, rest)) = part.split_once(':')
        && is_numbered(host, "")
        && rest.split(':').count() == 3
        && rest.split(':').all(|number| is_numbered(number, ""))
    {
        return Some(rest);
    }
    let is_assigned = part == "block" || is_numbered(part, "host") || part.starts_with("target");
    let word = ["virtio", "nvme"]
        .into_iter()
        .find(|word| is_numbered(part, word));
    (!is_assigned).then(|| word.map_or(part, |word| &part[..word.len()]))
}

#[cfg(test)]
mod tests;
