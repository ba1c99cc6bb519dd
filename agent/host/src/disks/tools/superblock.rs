//! Reads the superblock of an unmounted device with direct reads, because a filesystem that was
//! mounted a moment ago has bypassed the device's page cache as well.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek as _, SeekFrom},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    sync::mpsc,
    thread,
    time::Duration,
};

use nix::libc;
use virtfleet_agent_core::disks::superblock::{HEAD_BYTES, Superblock};

use super::super::{ioctl, reader::Aligned};

/// How long a device may take: one whose storage is gone never answers, and the read cannot be
/// interrupted.
const READ_TIMEOUT: Duration = Duration::from_mins(1);
/// Block size that is sufficient for direct reads of every device.
const BLOCK_BYTES: u64 = 4096;
/// Maximum number of bytes that are read at a time.
const MAX_BYTES: usize = 256 << 10;

/// The superblock at the start of a device or partition. `None` if there is none of a known kind.
///
/// # Errors
/// The device cannot be opened or read, or does not answer within a minute. A device shorter than
/// the superblock area is not an error.
pub fn read(device: &Path) -> io::Result<Option<Superblock>> {
    read_at(device, 0)
}

/// The superblock of a filesystem that starts at `offset` bytes, a multiple of 4096.
///
/// # Errors
/// As [`read`].
pub fn read_at(device: &Path, offset: u64) -> io::Result<Option<Superblock>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let path = device.to_owned();
    // It ends with its read, also if the result is awaited no longer.
    thread::Builder::new()
        .name("superblock".to_owned())
        .spawn(move || sender.send(bytes_at(&path, offset, HEAD_BYTES)))?;
    let bytes = receiver
        .recv_timeout(READ_TIMEOUT)
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the device does not answer"))??;
    Ok(Superblock::parse(&bytes))
}

/// Size of a device in bytes.
///
/// # Errors
/// The device cannot be opened.
pub fn length(device: &Path) -> io::Result<u64> {
    open(device)?.seek(SeekFrom::End(0))
}

/// Opens without waiting for a medium.
fn open(device: &Path) -> io::Result<File> {
    let with = |flags| OpenOptions::new().read(true).custom_flags(flags).open(device);
    match with(ioctl::DIRECT) {
        // Files of tests on tmpfs do not support direct reads.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => with(ioctl::DIRECT & !libc::O_DIRECT),
        opened => opened,
    }
}

/// So many bytes of a device from `offset` on, at most 256 KiB; fewer at its end.
///
/// # Errors
/// As [`read`].
pub fn bytes_at(device: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let file = open(device)?;
    // Direct reads begin and end at a block.
    let before = usize::try_from(offset % BLOCK_BYTES).unwrap_or_default();
    let begin = offset - before as u64;
    let mut buffer = Aligned::new();
    let room = buffer.chunk((before + length.min(MAX_BYTES)).next_multiple_of(4096));
    let mut done = 0;
    while done < room.len() {
        match file.read_at(&mut room[done..], begin + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        // A short direct read ends at the end of the device.
        if done % 4096 != 0 {
            break;
        }
    }
    let end = done.min(before + length);
    Ok(room.get(before..end).unwrap_or_default().to_vec())
}
