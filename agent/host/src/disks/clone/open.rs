//! Reads an open disk for a comparison, in the thread of a
//! [`Reader`](super::super::reader::Reader).

use std::{
    cell::Cell,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    sync::mpsc::SyncSender,
};

use virtfleet_agent_core::disks::clone::Source;

use super::{
    super::{
        ioctl,
        reader::{Aligned, CHUNK_BYTES, Message, send},
    },
    root::RootDisk,
};

/// Direct reads start and end at multiples of this, or at the end of the device.
const ALIGNMENT_BYTES: u64 = 4096;

/// An open device. Each read is reported to the caller, which detects a device that does not
/// respond.
pub(super) struct Open<'t> {
    file: &'t File,
    size: u64,
    sender: &'t SyncSender<Message>,
    /// Bytes read so far from all devices of one comparison.
    read: &'t Cell<u64>,
    buffer: Aligned,
}

impl<'t> Open<'t> {
    pub(super) fn new(
        file: &'t File,
        size: u64,
        sender: &'t SyncSender<Message>,
        read: &'t Cell<u64>,
    ) -> Self {
        Self {
            file,
            size,
            sender,
            read,
            buffer: Aligned::new(),
        }
    }
}

impl Source for Open<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, String> {
        let end = offset + length as u64;
        let mut at = offset - offset % ALIGNMENT_BYTES;
        let mut bytes = Vec::with_capacity(length);
        while at < end {
            let stop = (at + CHUNK_BYTES as u64)
                .min(end.next_multiple_of(ALIGNMENT_BYTES))
                .min(self.size);
            let room = usize::try_from(stop.saturating_sub(at))
                .unwrap_or(CHUNK_BYTES)
                .min(CHUNK_BYTES);
            let chunk = self.buffer.chunk(room);
            read_exact(self.file, chunk, at)?;
            let begin = usize::try_from(offset.saturating_sub(at))
                .unwrap_or(room)
                .min(room);
            let wanted = usize::try_from(end - at).unwrap_or(room).min(room);
            bytes.extend_from_slice(chunk.get(begin..wanted).unwrap_or_default());
            at = stop;
            if room == 0 {
                return Err(format!("a read at byte {at} is beyond the end of the device"));
            }
            self.read.set(self.read.get() + room as u64);
            send(self.sender, Message::Read(self.read.get()))
                .map_err(|_| "the comparison was canceled".to_owned())?;
        }
        Ok(bytes)
    }
}

fn read_exact(file: &File, chunk: &mut [u8], offset: u64) -> Result<(), String> {
    let mut done = 0;
    while done < chunk.len() {
        let at = offset + done as u64;
        match file.read_at(&mut chunk[done..], at) {
            Ok(0) => {
                return Err(format!(
                    "a read at byte {at} returned no data: the device is shorter than expected"
                ));
            }
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("read error at byte {at}: {error}")),
        }
    }
    Ok(())
}

/// Opens the root disk for reading. It is mounted, so it is neither locked nor opened exclusively.
pub(super) fn open_root(root: &RootDisk) -> Result<File, String> {
    let open = |path: &Path| {
        OpenOptions::new()
            .read(true)
            .custom_flags(ioctl::DIRECT)
            .open(path)
    };
    open(&root.node).map_err(|error| format!("cannot open the root disk {}: {error}", root.node.display()))
}
