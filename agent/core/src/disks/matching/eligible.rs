//! Whether a device may be used at all.

use super::super::device::{Device, MIN_DISK_BYTES};

/// Returns why a device must never be used, if so.
pub fn ineligible(device: &Device) -> Option<&'static str> {
    if device.carries_system {
        Some("it has the operating system")
    } else if device.read_only {
        Some("it is read-only")
    } else if device.id.size < MIN_DISK_BYTES {
        Some("it is smaller than 64 MiB")
    } else {
        None
    }
}
