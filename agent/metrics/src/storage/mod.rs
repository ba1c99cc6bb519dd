//! Disks, filesystems and storage drivers.

mod btrfs;
mod btrfs_devices;
mod diskstats;
mod dmmultipath;
mod filesystem;
mod mdadm;
mod mountstats;
mod nvme;
mod udev;
mod xfs;
mod zfs;

use super::{Entry, Flag};

/// The collectors of this group by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::on("btrfs", "Space, devices and commits of btrfs", btrfs::new),
    Entry::on("diskstats", "I/O and properties of block devices", diskstats::new).with(&[
        Flag::text("device-exclude", "deviceExclude"),
        Flag::text("device-include", "deviceInclude"),
    ]),
    Entry::on(
        "dmmultipath",
        "Multipath devices and their paths",
        dmmultipath::new,
    ),
    Entry::on(
        "filesystem",
        "Space and state of mounted filesystems",
        filesystem::new,
    )
    .with(&[
        Flag::text("mount-points-exclude", "mountPointsExclude"),
        Flag::text("mount-points-include", "mountPointsInclude"),
        Flag::text("fs-types-exclude", "fsTypesExclude"),
        Flag::text("fs-types-include", "fsTypesInclude"),
        Flag::text("mount-timeout", "mountTimeout"),
    ]),
    Entry::on("mdadm", "Software RAID", mdadm::new),
    Entry::off("mountstats", "Statistics of NFS clients", mountstats::new),
    Entry::on("nvme", "NVMe controllers and their namespaces", nvme::new),
    Entry::on("xfs", "Statistics of XFS filesystems", xfs::new),
    Entry::on("zfs", "The cache, the log and the pools of ZFS", zfs::new),
];
