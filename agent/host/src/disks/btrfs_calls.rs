//! Device information of a mounted btrfs (`linux/btrfs.h`; kernel: `fs/btrfs/ioctl.c`). The calls
//! need no privilege beyond opening the mount point.

use std::{fs::File, os::fd::AsRawFd as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use nix::{
    errno::Errno,
    libc,
    sys::statfs::{BTRFS_SUPER_MAGIC, fstatfs},
};

/// Maximum device id that is tried. Ids start at 1 and are not reused, so a filesystem whose
/// devices were replaced has gaps.
const MAX_DEVICE_ID: u64 = 4096;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BtrfsFilesystem {
    pub uuid: String,
    /// Its devices in the order of their ids.
    pub devices: Vec<BtrfsDevice>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BtrfsDevice {
    /// Name of its node without the directory, e.g. `vdb`.
    pub name: String,
    pub uuid: String,
    /// Bytes allocated to chunks.
    pub used: u64,
    /// Size in bytes.
    pub total: u64,
    /// Error counters: write, read, flush, corruption, generation.
    pub errors: [u64; 5],
}

/// The ioctls from nix's macros. Arrays of 64-bit words stand in for the structures.
mod raw {
    // struct btrfs_ioctl_dev_info_args, btrfs_ioctl_fs_info_args and btrfs_ioctl_get_dev_stats.
    nix::ioctl_readwrite!(device, 0x94, 30, [u64; 512]);
    nix::ioctl_read!(filesystem, 0x94, 31, [u64; 128]);
    nix::ioctl_readwrite!(errors, 0x94, 52, [u64; 129]);
}

/// Reads the devices of the btrfs mounted at `mount_point`. Blocks if the filesystem hangs.
///
/// # Errors
/// The filesystem is not btrfs, its mount point cannot be opened, or a device cannot be read.
pub fn btrfs_devices(mount_point: &Path) -> Result<BtrfsFilesystem, Errno> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(mount_point)
        .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    // Other filesystems use the same ioctl numbers for other calls.
    if fstatfs(&file)?.filesystem_type() != BTRFS_SUPER_MAGIC {
        return Err(Errno::ENOTTY);
    }
    let mut words = [0; 128];
    // SAFETY: the descriptor is open for as long as `file` lives, and the kernel writes one such
    // structure, of 1024 bytes.
    #[expect(unsafe_code, reason = "ioctl(2) has no safe form")]
    unsafe { raw::filesystem(file.as_raw_fd(), &raw mut words) }?;
    let [last, count] = [words[0], words[1]];
    let mut found = BtrfsFilesystem {
        uuid: uuid(&words[2..4]),
        devices: Vec::new(),
    };
    for number in 0..=last.min(MAX_DEVICE_ID) {
        if found.devices.len() as u64 >= count {
            break;
        }
        match device(&file, number) {
            Err(Errno::ENODEV) => {}
            device => found.devices.push(device?),
        }
    }
    Ok(found)
}

fn device(file: &File, number: u64) -> Result<BtrfsDevice, Errno> {
    let mut words = [0; 512];
    words[0] = number;
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and the kernel reads and
    // writes one such structure, of 4096 bytes.
    #[expect(unsafe_code, reason = "ioctl(2) has no safe form")]
    unsafe { raw::device(file.as_raw_fd(), &raw mut words) }?;
    let mut errors = [0; 129];
    // Number of counters that the buffer has room for.
    [errors[0], errors[1]] = [number, 5];
    // SAFETY: as above, with 1032 bytes.
    #[expect(unsafe_code, reason = "ioctl(2) has no safe form")]
    unsafe { raw::errors(file.as_raw_fd(), &raw mut errors) }?;
    // The path is in the last 1024 bytes.
    let path: Vec<u8> = words[384..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    let path = String::from_utf8_lossy(path);
    Ok(BtrfsDevice {
        name: path.rsplit('/').next().unwrap_or_default().to_owned(),
        uuid: uuid(&words[1..3]),
        used: words[3],
        total: words[4],
        errors: [errors[3], errors[4], errors[5], errors[6], errors[7]],
    })
}

/// Formats a UUID from its bytes in two words.
fn uuid(words: &[u64]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in words.iter().flat_map(|word| word.to_ne_bytes()).enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.extend([byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0')));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_filesystems_are_rejected() {
        assert_eq!(btrfs_devices(Path::new("/proc")), Err(Errno::ENOTTY));
        assert_eq!(btrfs_devices(Path::new("/no/such")), Err(Errno::ENOENT));
        assert_eq!(btrfs_devices(Path::new("/dev/null")), Err(Errno::ENOTDIR));
    }

    #[test]
    fn a_uuid_keeps_its_byte_order() {
        let words = [[0x0f, 1, 2, 3, 4, 5, 6, 0xff], [8, 9, 10, 11, 12, 13, 14, 15]].map(u64::from_ne_bytes);
        assert_eq!(uuid(&words), "0f010203-0405-06ff-0809-0a0b0c0d0e0f");
    }
}
