//! What filesystems and disks have counted, as sysfs has it. All of these files are open to everybody.

use std::{collections::BTreeMap, path::Path};

use virtfleet_agent_core::disks::health::Look;

use super::{list, read_text};
use crate::Roots;

fn line(path: &Path) -> Option<String> {
    let text = read_text(path, 4096).ok()?;
    let text = text.trim().replace(char::is_control, " ");
    (!text.is_empty()).then_some(text)
}

fn number(path: &Path) -> Option<u64> {
    line(path)?.parse().ok()
}

/// `Documentation/ABI/testing/sysfs-fs-ext4`. The count of errors is the superblock's, and stays until `e2fsck` has run; warnings are of this mount.
pub(super) fn ext4(roots: &Roots, mut look: Look) -> Look {
    let folder = roots.sys(format!("fs/ext4/{}", look.block));
    for (kind, file) in [("error", "errors_count"), ("warning", "warning_count")] {
        if let Some(count) = number(&folder.join(file)) {
            look.errors.insert(kind.to_owned(), count);
        }
    }
    look.last_error_s = number(&folder.join("last_error_time")).filter(|time| *time > 0);
    look.last_error_in = line(&folder.join("last_error_func"));
    look.written_bytes = number(&folder.join("lifetime_write_kbytes")).and_then(|kib| kib.checked_mul(1024));
    look
}

/// `Documentation/ABI/testing/sysfs-fs-btrfs`, from Linux 5.14 on: a line a kind, for each device of the filesystem. They stay until somebody sets them back.
pub(super) fn btrfs(roots: &Roots, mut look: Look) -> Look {
    let all = roots.sys("fs/btrfs");
    let filesystems = list(&all).unwrap_or_default();
    let Some(folder) = filesystems
        .iter()
        .map(|uuid| all.join(uuid))
        .find(|folder| folder.join("devices").join(&look.block).exists())
    else {
        return look;
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
    look.errors = errors;
    look
}

/// Errors and timeouts of a SCSI disk, in hexadecimal (`drivers/scsi/scsi_sysfs.c`); virtio and NVMe count none.
pub(super) fn scsi(roots: &Roots, device: &str) -> (Option<u64>, Option<u64>) {
    let count = |file: &str| {
        let of_disk = line(&roots.sys(format!("block/{device}/device/{file}")));
        // Of a partition the link leads below the directory of its disk.
        let of_partition = || line(&roots.sys(format!("class/block/{device}/../device/{file}")));
        let text = of_disk.or_else(of_partition)?;
        u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    (count("ioerr_cnt"), count("iotmo_cnt"))
}
