//! Whether a device fits what the settings name.

use super::super::{device::Device, wanted::Wanted};
use super::csi;
pub use super::named::seen_serial;
pub(super) use super::named::{fits_all_named, fits_what_is_named, path_of};

pub(super) fn fits(disk: &Wanted, device: &Device) -> bool {
    fits_but_for_size(disk, device) && disk.size.is_none_or(|size| device.id.size == size)
}

pub(super) fn fits_but_for_size(disk: &Wanted, device: &Device) -> bool {
    !csi::is_excluded(disk, device) && fits_all_named(disk, device)
}
