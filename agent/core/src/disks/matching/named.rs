//! What the settings name of a device.

use super::super::{
    device::{Bus, Device, VIRTIO_SERIAL_BYTES},
    wanted::Wanted,
};

/// Serial that a guest sees of a disk on that bus.
pub fn seen_serial(serial: &str, bus: Bus) -> &[u8] {
    let bytes = serial.as_bytes();
    match bus {
        Bus::Virtio => &bytes[..bytes.len().min(VIRTIO_SERIAL_BYTES)],
        _ => bytes,
    }
}

/// Whether all conditions in `match` are met, ignoring whether the volume belongs to a CSI driver.
pub(super) fn fits_what_is_named(disk: &Wanted, device: &Device) -> bool {
    fits_all_named(disk, device) && disk.size.is_none_or(|size| device.id.size == size)
}

pub(super) fn fits_all_named(disk: &Wanted, device: &Device) -> bool {
    let serial = disk.serial.as_deref().is_none_or(|wanted| {
        let has = device.id.serial.as_deref().unwrap_or_default();
        !has.is_empty() && has.as_bytes() == seen_serial(wanted, device.bus)
    });
    serial
        && disk
            .volume
            .as_ref()
            .is_none_or(|volume| device.volume.as_ref() == Some(volume))
        && disk
            .path
            .as_deref()
            .is_none_or(|pattern| path_of(pattern, device).is_some())
}

pub(super) fn path_of<'a>(pattern: &str, device: &'a Device) -> Option<&'a String> {
    device.paths.iter().find(|path| glob(pattern, path))
}

/// Matches a pattern in which `*` stands for any text.
pub(super) fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = pattern.contains('*').then(|| parts.next_back()).flatten() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}
