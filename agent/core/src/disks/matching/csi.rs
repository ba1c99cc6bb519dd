//! Volumes that are attached to the VM for a CSI driver. The driver formats and mounts them.
//!
//! A volume is blank when it is attached, so an agent that used "the second disk of 10 GiB" would
//! race with the driver. Two facts tell such a volume from a disk of the VM's spec:
//! - Its serial or its volume's name is a UUID, or `pvc-` and a UUID. kubevirt/csi-driver uses the
//!   UID of the DataVolume as serial (`pkg/service/controller.go`). Names with `pvc-` are those of
//!   the external provisioner, which Harvester's driver uses for the volume.
//! - It came later than the first boot ([`super::super::known`]). Drivers need not set a serial.

use super::{
    super::{
        device::{Device, VIRTIO_SERIAL_BYTES},
        wanted::Wanted,
    },
    fits_what_is_named, ineligible,
};

/// Lengths of the parts of a UUID in its text form (RFC 9562, section 4).
const PARTS: [usize; 5] = [8, 4, 4, 4, 12];
/// Length of a UUID's text form.
const UUID_BYTES: usize = 36;
/// Prefix of a volume's name: the default of the external provisioner.
const VOLUME_PREFIX: &str = "pvc-";

/// Whether a serial or volume name is one that CSI drivers assign: a UUID, or a name that begins
/// with `pvc-` and a UUID. A virtio disk shows the first 20 bytes of it.
pub fn is_csi_name(name: &str) -> bool {
    if let Some(rest) = name.strip_prefix(VOLUME_PREFIX) {
        let shown = VIRTIO_SERIAL_BYTES - VOLUME_PREFIX.len();
        let uuid = rest.get(..rest.len().min(UUID_BYTES));
        return rest.len() >= shown && uuid.is_some_and(begins_uuid);
    }
    matches!(name.len(), UUID_BYTES | VIRTIO_SERIAL_BYTES) && begins_uuid(name)
}

/// Whether a text is the first part of a UUID.
fn begins_uuid(text: &str) -> bool {
    let mut parts = text.split('-');
    let mut left = text.len();
    for length in PARTS {
        let expected = length.min(left);
        let part = parts.next().unwrap_or_default();
        if part.len() != expected || !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        left = left.saturating_sub(expected + 1);
        if left == 0 {
            break;
        }
    }
    parts.next().is_none()
}

/// The serial or volume name of a device, if CSI drivers assign such names.
pub fn csi_name(device: &Device) -> Option<&str> {
    let names = [&device.id.serial, &device.volume].into_iter().flatten();
    names.map(String::as_str).find(|name| is_csi_name(name))
}

/// Whether `match` names the disk: its serial, its volume, or a partition on it.
pub(super) fn is_named(disk: &Wanted) -> bool {
    disk.serial.is_some() || disk.volume.is_some() || disk.names_partition()
}

/// Whether a declared disk must not match this device, because it may belong to a CSI driver and
/// `match` does not name it.
pub(super) fn is_excluded(disk: &Wanted, device: &Device) -> bool {
    !is_named(disk) && (device.came_later || csi_name(device).is_some())
}

/// Returns the devices, by index, that a declared disk would match or count if they could not be
/// volumes of a CSI driver.
pub fn skipped(disk: &Wanted, devices: &[Device]) -> Vec<usize> {
    let skipped = |device: &Device| {
        is_excluded(disk, device)
            && device.id.partition.is_none()
            && ineligible(device).is_none()
            && fits_what_is_named(disk, device)
    };
    (0..devices.len())
        .filter(|index| skipped(&devices[*index]))
        .collect()
}

#[cfg(test)]
mod tests;
