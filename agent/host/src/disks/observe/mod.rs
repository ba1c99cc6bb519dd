//! What is read of the guest, besides the devices themselves, before a plan for its disks is made. Nothing here writes or waits.

mod files;
mod mounts;
mod places;

pub use files::{UNITS, disk_files, disk_unit_file_there};
pub use mounts::{MountsError, disk_mounts, node_number, swapped};
pub use places::{bad_key, mount_point, owner_of};
