//! Error counters of filesystems and disks in sysfs. All users can read these files.

use std::collections::BTreeMap;

use virtfleet_agent_core::disks::health::DiskSample;

use super::{list, read_text};
use crate::{Roots, read_line, read_value};

/// `Documentation/ABI/testing/sysfs-fs-ext4`. The error count is in the superblock and is reset by
/// `e2fsck`. The warning count is of the current mount.
pub(super) fn ext4(roots: &Roots, mut health: DiskSample) -> DiskSample {
    let folder = roots.sys(format!("fs/ext4/{}", health.block));
    for (kind, file) in [("error", "errors_count"), ("warning", "warning_count")] {
        if let Some(count) = read_value(&folder.join(file)) {
            health.errors.insert(kind.to_owned(), count);
        }
    }
    health.last_error_s = read_value(&folder.join("last_error_time")).filter(|time| *time > 0);
    health.last_error_in = read_line(&folder.join("last_error_func"));
    health.written_bytes =
        read_value::<u64>(&folder.join("lifetime_write_kbytes")).and_then(|kib| kib.checked_mul(1024));
    health
}

/// `Documentation/ABI/testing/sysfs-fs-btrfs`, Linux 5.14 and later: one line per kind for each
/// device. The counters persist until an admin resets them.
pub(super) fn btrfs(roots: &Roots, mut health: DiskSample) -> DiskSample {
    let all = roots.sys("fs/btrfs");
    let filesystems = list(&all).unwrap_or_default();
    let Some(folder) = filesystems
        .iter()
        .map(|uuid| all.join(uuid))
        .find(|folder| folder.join("devices").join(&health.block).exists())
    else {
        return health;
    };
    let devices = folder.join("devinfo");
    let mut errors: BTreeMap<String, u64> = BTreeMap::new();
    for device in list(&devices).unwrap_or_default() {
        let text = read_text(&devices.join(device).join("error_stats"), 4096).unwrap_or_default();
        for line in text.lines() {
            let Some((kind, count)) = line.split_once(' ') else {
                continue;
            };
            if let (Some(kind), Ok(count)) = (kind.strip_suffix("_errs"), count.trim().parse::<u64>()) {
                let sum = errors.entry(kind.to_owned()).or_default();
                *sum = sum.saturating_add(count);
            }
        }
    }
    health.errors = errors;
    health
}

/// Errors and timeouts of a SCSI disk in hexadecimal (`drivers/scsi/scsi_sysfs.c`). virtio and NVMe
/// disks have no such counters.
pub(super) fn scsi(roots: &Roots, device: &str) -> (Option<u64>, Option<u64>) {
    let count = |file: &str| {
        let of_disk = read_line(&roots.sys(format!("block/{device}/device/{file}")));
        // A partition's link points below its disk's directory.
        let of_partition = || read_line(&roots.sys(format!("class/block/{device}/../device/{file}")));
        let text = of_disk.or_else(of_partition)?;
        u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    (count("ioerr_cnt"), count("iotmo_cnt"))
}
