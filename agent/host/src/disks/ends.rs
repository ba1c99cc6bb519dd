//! Searches behind the end of a filesystem for metadata of a volume that was once smaller.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
};

use virtfleet_agent_core::disks::{DeviceId, ends};

use super::{
    Disks, identity, ioctl,
    reader::{Aligned, CHUNK_BYTES},
};

impl Disks<'_> {
    /// The first metadata of a volume manager or partition table between the end of the filesystem
    /// (which has `filesystem_bytes`) and the end of the disk: its kind and its offset on the disk.
    /// A bounded part is read ([`ends::search_bytes`]).
    ///
    /// # Errors
    /// The device cannot be read, or is a different one.
    pub fn metadata_behind(
        &self,
        id: &DeviceId,
        filesystem_bytes: u64,
    ) -> io::Result<Option<(&'static str, u64)>> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(ioctl::DIRECT)
            .open(self.node(id))?;
        identity::check(&file, id).map_err(io::Error::other)?;
        let mut buffer = Aligned::new();
        let mut offset = filesystem_bytes - filesystem_bytes % 4096;
        let searched = ends::search_bytes(id.size).next_multiple_of(4096);
        let end = offset.saturating_add(searched).min(id.size);
        while offset < end {
            let length = usize::try_from(end - offset)
                .unwrap_or(CHUNK_BYTES)
                .min(CHUNK_BYTES);
            // Direct reads use whole blocks; the device may end within the last one.
            let room = buffer.chunk(length);
            let mut done = 0;
            while done < length {
                match file.read_at(&mut room[done..], offset + done as u64) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(count) => done += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            if let Some((kind, at)) = ends::find(room) {
                return Ok(Some((kind, offset + at as u64)));
            }
            offset += length as u64;
        }
        Ok(None)
    }
}
