//! Identifiers of all disks and partitions, from sysfs and udev's database. No device is opened.

use std::path::Path;

use virtfleet_agent_core::{
    disks::duplicates::{Identified, Reference, of_command_line, of_fstab, tags},
    procfs::udev,
};

use crate::{Roots, list, read_text};

/// Devices on top of others, in memory, or optical drives: their identifiers also appear on another
/// device.
const NOT_DISKS: [&str; 10] = [
    "bcache", "dm-", "drbd", "fd", "loop", "md", "nbd", "ram", "sr", "zram",
];
/// Maximum number of devices.
/// Maximum size of one file in bytes.
const MAX_DEVICES: usize = 4096;
const MAX_BYTES: usize = 1 << 20;

/// Every disk and partition with its identifiers. Unreadable files yield none.
pub fn identified(roots: &Roots) -> Vec<Identified> {
    let mut all = Vec::new();
    for disk in list(&roots.sys("block")).unwrap_or_default() {
        let kind = disk.trim_end_matches(|c: char| c.is_ascii_digit());
        if NOT_DISKS.contains(&kind) {
            continue;
        }
        let folder = roots.sys("block").join(&disk);
        let parts = list(&folder).unwrap_or_default();
        let parts = parts
            .iter()
            .filter(|name| folder.join(name).join("partition").exists());
        let places = parts.map(|name| (name.clone(), folder.join(name)));
        for (name, place) in std::iter::once((disk.clone(), folder.clone())).chain(places) {
            if all.len() >= MAX_DEVICES {
                return all;
            }
            all.push(Identified {
                tags: udev_data(roots, &place)
                    .map(|data| tags(udev::properties(&data)))
                    .unwrap_or_default(),
                name,
                disk: disk.clone(),
            });
        }
    }
    all
}

fn udev_data(roots: &Roots, place: &Path) -> Option<String> {
    let number = read_text(&place.join("dev"), 64).ok()?;
    read_text(&roots.udev_data.join(format!("b{}", number.trim())), MAX_BYTES).ok()
}

/// Devices that the kernel's command line and `/etc/fstab` select by an identifier.
pub fn references(roots: &Roots) -> Vec<Reference> {
    let line = read_text(&roots.proc("cmdline"), MAX_BYTES).unwrap_or_default();
    let fstab = read_text(&roots.root("/etc/fstab"), MAX_BYTES).unwrap_or_default();
    let mut all = of_command_line(&line);
    all.extend(of_fstab(&fstab));
    all
}

#[cfg(test)]
mod tests {
    use std::fs;

    use virtfleet_agent_core::disks::duplicates::findings;

    use super::*;

    /// A root disk with two partitions, a clone of it, an empty disk and a loop device.
    #[test]
    fn a_clone_is_found_from_udevs_database_only() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().join("root"),
            procfs: dir.path().join("proc"),
            sysfs: dir.path().join("sys"),
            udev_data: dir.path().join("udev"),
        };
        let write = |path: std::path::PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let device = |path: &str, minor: u32, data: &str| {
            let place = roots.sys("block").join(path);
            write(place.join("dev"), &format!("252:{minor}\n"));
            if path.contains('/') {
                write(place.join("partition"), "1\n");
            }
            write(roots.udev_data.join(format!("b252:{minor}")), data);
        };
        let fs_data = "I:1\nE:ID_FS_TYPE=ext4\nE:ID_FS_UUID=11-22\nE:ID_FS_LABEL=cloudimg-rootfs\n";
        let efi = "I:1\nE:ID_FS_TYPE=vfat\nE:ID_FS_UUID=AB-CD\nE:ID_FS_LABEL=UEFI\n";
        for (disk, minor) in [("vda", 0), ("vdb", 16)] {
            device(disk, minor, "I:1\nE:ID_PART_TABLE_TYPE=gpt\n");
            device(&format!("{disk}/{disk}1"), minor + 1, fs_data);
            device(&format!("{disk}/{disk}15"), minor + 15, efi);
        }
        device("vdc", 32, "I:1\n");
        device("loop0", 100, fs_data);
        assert_eq!(identified(&roots).len(), 7);
        write(roots.proc("cmdline"), "root=LABEL=cloudimg-rootfs ro\n");
        write(
            roots.root("/etc/fstab"),
            "UUID=AB-CD /boot/efi vfat umask=0077 0 1\n",
        );
        let all = findings(&identified(&roots), &references(&roots));
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].subject.name, "vda vdb");
        assert!(
            all[0].message.contains("root= of /proc/cmdline"),
            "{}",
            all[0].message
        );
        assert!(
            all[0].message.contains("/dev/vda1 and /dev/vdb1"),
            "{}",
            all[0].message
        );
        fs::remove_dir_all(roots.sys("block/vdb")).unwrap();
        assert!(findings(&identified(&roots), &references(&roots)).is_empty());
    }
}
