//! Detects filesystems that became read-only: the kernel does this on errors of ext4, btrfs and
//! others, and it stays unnoticed until writes fail.

use std::collections::HashMap;

use crate::procfs::mountinfo::Mount;

/// Maximum number of filesystems that are tracked.
const MAX_TRACKED: usize = 1024;

/// Tracks which filesystems were writable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remounts {
    /// By device: whether it was writable at first sight.
    first: HashMap<(u32, u32), bool>,
}

impl Remounts {
    /// Returns one mount per filesystem that is no longer writable: it was writable before, or the
    /// kernel made it read-only, which shows as a mount with `rw` on a superblock without.
    pub fn look<'a, 'text>(&mut self, mounts: &'a [Mount<'text>]) -> Vec<&'a Mount<'text>> {
        let mut found: Vec<&Mount<'_>> = Vec::new();
        let mut seen = Vec::new();
        for mount in mounts.iter().filter(|mount| is_watched(mount.fs_type)) {
            let device = (mount.major, mount.minor);
            if seen.contains(&device) || seen.len() >= MAX_TRACKED {
                continue;
            }
            seen.push(device);
            // Use the superblock's state: a mount that is ro next to others that are rw is
            // configured so.
            let shut = has(mount.super_options, b"ro") || has(mount.super_options, b"emergency_ro");
            let was_writable = *self.first.entry(device).or_insert(!shut);
            if shut && (was_writable || has(mount.options, b"rw")) {
                found.push(mount);
            }
        }
        self.first.retain(|device, _| seen.contains(device));
        found
    }
}

/// Whether a filesystem type is tracked: writable filesystems on disks, no read-only types and no
/// network filesystems.
pub fn is_watched(fs_type: &[u8]) -> bool {
    matches!(
        fs_type,
        b"ext2" | b"ext3" | b"ext4" | b"xfs" | b"btrfs" | b"f2fs" | b"vfat" | b"jfs"
    )
}

fn has(options: &[u8], wanted: &[u8]) -> bool {
    options.split(|byte| *byte == b',').any(|option| option == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::mountinfo::mounts;

    fn look(remounts: &mut Remounts, text: &str) -> Vec<String> {
        let all: Vec<_> = mounts(text.as_bytes()).map(Result::unwrap).collect();
        let found = remounts.look(&all);
        found
            .iter()
            .map(|mount| String::from_utf8_lossy(&mount.mount_point).into_owned())
            .collect()
    }

    #[test]
    fn formerly_writable_filesystems_are_reported() {
        let mut remounts = Remounts::default();
        let rw = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /ro ro - xfs /dev/b ro\n3 1 11:0 / /cd rw - iso9660 /dev/c ro\n";
        assert!(look(&mut remounts, rw).is_empty());
        let ro = "1 0 8:1 / / ro - ext4 /dev/a ro\n4 1 8:1 / /bind rw - ext4 /dev/a ro\n2 1 8:2 / /ro ro - xfs /dev/b ro\n";
        assert_eq!(look(&mut remounts, ro), ["/"]);
        assert!(look(&mut remounts, rw).is_empty());
        // A read-only bind mount does not make its filesystem read-only.
        let bind = "4 1 8:1 / /bind ro - ext4 /dev/a rw\n1 0 8:1 / / rw - ext4 /dev/a rw\n";
        assert!(look(&mut remounts, bind).is_empty());
    }

    #[test]
    fn kernel_remounts_are_reported_at_first_sight() {
        let mut remounts = Remounts::default();
        let text = "1 0 8:1 / / rw - ext4 /dev/a ro,errors=remount-ro\n2 1 8:2 / /x rw - ext4 /dev/b rw,emergency_ro\n";
        assert_eq!(look(&mut remounts, text), ["/", "/x"]);
    }
}
