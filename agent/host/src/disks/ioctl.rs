//! Block device ioctls on an open file, not on a name.

use std::{fs::File, os::fd::AsRawFd as _};

use nix::{errno::Errno, libc};
use virtfleet_agent_core::disks::DevNumber;

/// The ioctls from nix's macros.
mod raw {
    // include/uapi/linux/fs.h: BLKGETSIZE64 is _IOR(0x12,114,size_t), BLKGETDISKSEQ is
    // _IOR(0x12,128,__u64).
    nix::ioctl_read!(size, 0x12, 114, usize);
    nix::ioctl_read!(diskseq, 0x12, 128, u64);
    // include/uapi/linux/loop.h: LOOP_GET_STATUS64 is the bare number 0x4C05, and struct
    // loop_info64 has 232 bytes.
    nix::ioctl_read_bad!(loop_status, 0x4C05, [u64; 29]);
    // BLKZEROOUT is _IO(0x12,127) with a pointer to two u64, BLKRRPART _IO(0x12,95).
    nix::ioctl_write_ptr_bad!(zero_out, nix::request_code_none!(0x12, 127), [u64; 2]);
    nix::ioctl_none!(reread, 0x12, 95);
}

/// Size in bytes (`BLKGETSIZE64`).
pub(super) fn size(device: &File) -> Result<u64, Errno> {
    let mut bytes: usize = 0;
    // SAFETY: the descriptor is open while `device` is borrowed, and the kernel writes one `size_t`
    // to `bytes`. A file that is not a block device answers ENOTTY.
    #[expect(unsafe_code, reason = "ioctl(2) has no safe form")]
    unsafe { raw::size(device.as_raw_fd(), &raw mut bytes) }?;
    Ok(bytes as u64)
}

/// Sequence number, unique within a boot (`BLKGETDISKSEQ`). `None` before Linux 5.15.
pub(super) fn diskseq(device: &File) -> Result<Option<u64>, Errno> {
    let mut number: u64 = 0;
    // SAFETY: as above, with one `u64`.
    #[expect(unsafe_code, reason = "ioctl(2) has no safe form")]
    let answer = unsafe { raw::diskseq(device.as_raw_fd(), &raw mut number) };
    match answer {
        Ok(_) => Ok(Some(number)),
        Err(Errno::ENOTTY | Errno::EINVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The block device below a loop device; `None` if it is a file. `lo_rdevice` is encoded as by
/// `new_encode_dev` of the kernel's `linux/kdev_t.h`.
///
/// The call may wait for the filesystem of the backing file.
pub(super) fn loop_backing(device: &File) -> Result<Option<DevNumber>, Errno> {
    let mut status = [0_u64; 29];
    // SAFETY: as above, with the 232 bytes of `struct loop_info64`, which has the alignment of
    // `u64`.
    #[expect(unsafe_code, reason = "ioctl(2) has no safe form")]
    unsafe { raw::loop_status(device.as_raw_fd(), &raw mut status) }?;
    let Ok(number) = u32::try_from(status[2]) else {
        return Ok(None);
    };
    Ok((number != 0).then_some(DevNumber {
        major: (number & 0x000f_ff00) >> 8,
        minor: (number & 0xff) | ((number >> 12) & 0x000f_ff00),
    }))
}

/// Zeroes a range, with the device's own command where it has one. Reads return zeros when this
/// returns (`BLKZEROOUT`).
pub(super) fn zero_out(device: &File, offset: u64, length: u64) -> Result<(), Errno> {
    let range = [offset, length];
    // SAFETY: the descriptor is open while `device` is borrowed, and the kernel reads two `u64`
    // from `range`.
    #[expect(unsafe_code, reason = "ioctl(2) has no safe form")]
    unsafe { raw::zero_out(device.as_raw_fd(), &raw const range) }.map(drop)
}

/// Makes the kernel reread the partition table (`BLKRRPART`). `EBUSY` if a partition is in use,
/// `EINVAL` if the device cannot have partitions.
pub(super) fn reread_partitions(device: &File) -> Result<(), Errno> {
    // SAFETY: the descriptor is open while `device` is borrowed, and the call has no argument.
    #[expect(unsafe_code, reason = "ioctl(2) has no safe form")]
    unsafe { raw::reread(device.as_raw_fd()) }.map(drop)
}

/// `O_DIRECT`: reads come from the device, not from the page cache. The kernel first writes out
/// pages that other processes have dirtied (`filemap_write_and_wait_range` in the block device's
/// `read_iter`).
pub(super) const DIRECT: i32 = libc::O_DIRECT | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
/// With the kernel's exclusive claim: the device is not mounted, not swap, not below another device
/// and not claimed otherwise, and cannot become so while the file is open.
pub(super) const EXCLUSIVE: i32 = DIRECT | libc::O_EXCL;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regular_file_is_not_a_device() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(size(&file), Err(Errno::ENOTTY));
        assert_eq!(diskseq(&file), Ok(None));
        assert!(loop_backing(&file).is_err());
    }
}
