//! Limits of the virtio collectors.

/// Maximum number of exported devices, interfaces, disks or findings; more than a VM has.
pub(super) const MAX_EXPORTED: usize = 256;
