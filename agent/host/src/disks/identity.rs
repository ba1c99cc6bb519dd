//! Checks that an open file is the intended device. A name is no proof, because the kernel reuses
//! names.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
};

use nix::libc;
use virtfleet_agent_core::disks::{DevNumber, DeviceId};

use super::ioctl;

/// Difference from the intended device, or why it cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub(super) enum IdentityMismatch {
    #[error("cannot query the device: {0}")]
    Io(#[from] io::Error),
    #[error("is not a block device")]
    NoDevice,
    #[error("is now device {now}, was {was}")]
    Number { was: DevNumber, now: DevNumber },
    #[error("was attached again (sequence number {now:?}, was {was:?})")]
    Sequence { was: Option<u64>, now: Option<u64> },
    #[error("now has {now} bytes, had {was}")]
    Size { was: u64, now: u64 },
}

/// Checks that the node at `path` is the device.
///
/// # Errors
/// It is another device or cannot be inspected.
pub(super) fn check_path(path: &Path, id: &DeviceId) -> Result<(), IdentityMismatch> {
    check_number(&fs::metadata(path)?, id)
}

/// Checks that the open file is the device: number, sequence number and size.
///
/// # Errors
/// As [`check_path`].
pub(super) fn check(file: &File, id: &DeviceId) -> Result<(), IdentityMismatch> {
    check_number(&file.metadata()?, id)?;
    let now = ioctl::diskseq(file).map_err(io::Error::from)?;
    if now != id.diskseq {
        return Err(IdentityMismatch::Sequence { was: id.diskseq, now });
    }
    let now = ioctl::size(file).map_err(io::Error::from)?;
    if now != id.size {
        return Err(IdentityMismatch::Size { was: id.size, now });
    }
    Ok(())
}

/// Checks that the open file is the disk of a partition.
///
/// # Errors
/// As [`check_path`].
pub(super) fn check_disk(
    file: &File,
    number: DevNumber,
    diskseq: Option<u64>,
) -> Result<(), IdentityMismatch> {
    is_number(&file.metadata()?, number)?;
    let now = ioctl::diskseq(file).map_err(io::Error::from)?;
    if now == diskseq {
        Ok(())
    } else {
        Err(IdentityMismatch::Sequence { was: diskseq, now })
    }
}

fn check_number(metadata: &Metadata, id: &DeviceId) -> Result<(), IdentityMismatch> {
    is_number(metadata, id.number)
}

fn is_number(metadata: &Metadata, was: DevNumber) -> Result<(), IdentityMismatch> {
    if !metadata.file_type().is_block_device() {
        return Err(IdentityMismatch::NoDevice);
    }
    let number = metadata.rdev();
    let now = DevNumber {
        major: libc::major(number),
        minor: libc::minor(number),
    };
    if now == was {
        Ok(())
    } else {
        Err(IdentityMismatch::Number { was, now })
    }
}
