//! Volumes that a CSI driver attached to the VM. The driver formats and mounts them.
//!
//! kubevirt/csi-driver uses the UID of the DataVolume as the volume's serial
//! (`pkg/service/controller.go`), and finds the volume by that serial in the guest. The volume is
//! blank when it is attached, so an agent that used "the second disk of 10 GiB" would race with the
//! driver. Disks in the VM's spec have a serial that the author chose.

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

/// Whether a serial is a UUID, or the first 20 bytes of one, as virtio shows it.
pub fn is_csi_serial(serial: &str) -> bool {
    if !matches!(serial.len(), UUID_BYTES | VIRTIO_SERIAL_BYTES) {
        return false;
    }
    let mut parts = serial.split('-');
    let mut left = serial.len();
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

/// Whether a declared disk must not match this device, because it belongs to a CSI driver and
/// `match` names neither its serial nor its volume.
///
/// A partition's UUID or label identifies a disk, too. `volume` is an identity like `serial`. A
/// device shows a volume name only if it has no serial, so such a device is not from csi-driver.
pub(super) fn is_excluded(disk: &Wanted, device: &Device) -> bool {
    let names_it = disk.serial.is_some() || disk.volume.is_some() || disk.names_partition();
    !names_it && device.id.serial.as_deref().is_some_and(is_csi_serial)
}

/// Returns the devices, by index, that a declared disk would match or count if they were not from a
/// CSI driver.
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
