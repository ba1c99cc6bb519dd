//! Whether an open file is still the device that was meant. A name proves nothing: names are given anew.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
};

use nix::libc;
use virtfleet_agent_core::disks::{DevNumber, DeviceId};

use super::ioctl;

/// How the device is another one, or cannot be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotIt {
    #[error("cannot ask the device: {0}")]
    Io(#[from] io::Error),
    #[error("is no block device")]
    NoDevice,
    #[error("is device {now} now and was {was}")]
    Number { was: DevNumber, now: DevNumber },
    #[error("was attached anew (sequence number {now:?}, was {was:?})")]
    Sequence { was: Option<u64>, now: Option<u64> },
    #[error("has {now} bytes now and had {was}")]
    Size { was: u64, now: u64 },
}

/// The node of that path leads to the device.
pub(super) fn check_path(path: &Path, id: &DeviceId) -> Result<(), NotIt> {
    check_number(&fs::metadata(path)?, id)
}

/// The open file is the device: number, sequence number and size.
pub(super) fn check(file: &File, id: &DeviceId) -> Result<(), NotIt> {
    check_number(&file.metadata()?, id)?;
    let now = ioctl::diskseq(file).map_err(io::Error::from)?;
    if now != id.diskseq {
        return Err(NotIt::Sequence { was: id.diskseq, now });
    }
    let now = ioctl::size(file).map_err(io::Error::from)?;
    if now != id.size {
        return Err(NotIt::Size { was: id.size, now });
    }
    Ok(())
}

/// The open file is the disk that a partition is on.
pub(super) fn check_disk(file: &File, number: DevNumber, diskseq: Option<u64>) -> Result<(), NotIt> {
    is_number(&file.metadata()?, number)?;
    let now = ioctl::diskseq(file).map_err(io::Error::from)?;
    if now == diskseq {
        Ok(())
    } else {
        Err(NotIt::Sequence { was: diskseq, now })
    }
}

fn check_number(metadata: &Metadata, id: &DeviceId) -> Result<(), NotIt> {
    is_number(metadata, id.number)
}

fn is_number(metadata: &Metadata, was: DevNumber) -> Result<(), NotIt> {
    if !metadata.file_type().is_block_device() {
        return Err(NotIt::NoDevice);
    }
    let number = metadata.rdev();
    let now = DevNumber {
        major: libc::major(number),
        minor: libc::minor(number),
    };
    if now == was {
        Ok(())
    } else {
        Err(NotIt::Number { was, now })
    }
}
