//! Reads the superblock of an unmounted device with direct reads, because a filesystem that was
//! mounted a moment ago has bypassed the device's page cache as well.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
};

use virtfleet_agent_core::disks::superblock::{HEAD_BYTES, Superblock};

use super::super::{ioctl, reader::Aligned};

/// The superblock at the start of a device or partition. `None` if there is none of a known kind.
///
/// # Errors
/// The device cannot be opened or read. A device shorter than the superblock area is not an error.
pub fn read(device: &Path) -> io::Result<Option<Superblock>> {
    read_at(device, 0)
}

/// The superblock of a filesystem that starts at `offset` bytes, a multiple of 4096.
///
/// # Errors
/// As [`read`].
pub fn read_at(device: &Path, offset: u64) -> io::Result<Option<Superblock>> {
    let mut buffer = Aligned::new();
    let head = head(device, offset, &mut buffer)?;
    Ok(Superblock::parse(head))
}

fn head<'b>(device: &Path, offset: u64, buffer: &'b mut Aligned) -> io::Result<&'b [u8]> {
    let open = |flags| OpenOptions::new().read(true).custom_flags(flags).open(device);
    // Files of tests on tmpfs do not support direct reads.
    let file = match open(ioctl::DIRECT) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => open(0)?,
        opened => opened?,
    };
    let room = buffer.chunk(HEAD_BYTES);
    let mut done = 0;
    while done < room.len() {
        match file.read_at(&mut room[done..], offset + done as u64) {
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
    Ok(&room[..done])
}
