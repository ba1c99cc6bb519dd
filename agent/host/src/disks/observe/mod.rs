//! Facts about the guest, besides its devices, that a plan for its disks needs. Reads only and
//! never waits.

mod files;
mod mounts;
mod places;

pub use files::{UNITS, disk_files, disk_unit_file_there};
pub use mounts::{MountsError, btrfs_members, disk_mounts, node_number, swapped};
pub use places::{bad_key, mount_point, owner_of};
