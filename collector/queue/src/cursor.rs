//! The cursor file: up to which record everything is acknowledged. It is also the queue's lock.

use std::{io, path::PathBuf};

use crate::{
    error::{FileAction, QueueError},
    record::{read_u32, read_u64},
    storage::{QueueFile, read_full, write_full},
};

/// Name of the file in the queue's folder.
pub(crate) const CURSOR_NAME: &str = "cursor";
/// Version of the format of cursor and segments.
pub(crate) const FORMAT_VERSION: u32 = 1;
pub(crate) const SLOT_BYTES: usize = 40;
/// Offsets of the two slots: sectors of their own, so that a torn write damages one of them.
const SLOT_OFFSETS: [u64; 2] = [0, 512];
const MAGIC: [u8; 8] = *b"\xf7vqcurs\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CursorSlot {
    /// Grows with each write; the higher of two valid slots is the current one.
    generation: u64,
    /// First number that is not acknowledged.
    acknowledged: u64,
}

/// How a file begins that this program did not write or cannot use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadPrefix {
    /// Damaged, or not a file of a queue.
    Damaged,
    /// Valid, of another version.
    Version(u32),
}

/// The first 16 bytes of a slot and of a segment, in all versions: magic, version, checksum.
pub(crate) fn encode_prefix(magic: [u8; 8]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&magic);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..12]);
    bytes[12..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Checks the first 16 bytes. A damaged version number does not pass for another version, because
/// the prefix has a checksum of its own.
pub(crate) fn check_prefix(bytes: &[u8], magic: [u8; 8]) -> Result<(), BadPrefix> {
    if bytes[..8] != magic || read_u32(bytes, 12) != crc32fast::hash(&bytes[..12]) {
        return Err(BadPrefix::Damaged);
    }
    match read_u32(bytes, 8) {
        FORMAT_VERSION => Ok(()),
        version => Err(BadPrefix::Version(version)),
    }
}

impl CursorSlot {
    fn encode(self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..16].copy_from_slice(&encode_prefix(MAGIC));
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.acknowledged.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[16..32]);
        bytes[32..36].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; SLOT_BYTES]) -> Result<Self, BadPrefix> {
        check_prefix(bytes, MAGIC)?;
        if read_u32(bytes, 32) != crc32fast::hash(&bytes[16..32]) {
            return Err(BadPrefix::Damaged);
        }
        let slot = Self {
            generation: read_u64(bytes, 16),
            acknowledged: read_u64(bytes, 24),
        };
        // Numbers at the end of the range would leave none for what follows.
        let plausible = slot.generation < u64::MAX >> 1 && slot.acknowledged < u64::MAX >> 1;
        plausible.then_some(slot).ok_or(BadPrefix::Damaged)
    }
}

/// The open cursor file.
#[derive(Debug)]
pub(crate) struct Cursor<F> {
    file: F,
    path: PathBuf,
    /// What the file holds, once a write succeeded.
    written: u64,
    generation: u64,
    /// Slot that the next write goes to. The other one is what survives power loss, so it is not
    /// touched before this one is on the disk.
    slot: usize,
    /// First number that is not acknowledged, as far as the disk knows.
    durable: u64,
    /// The file was not synced since it was opened: which slots are on the disk is unknown.
    unknown: bool,
}

/// What opening a cursor file found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CursorState {
    New,
    Valid,
    /// The file has content, and no slot is valid.
    Lost,
}

impl<F: QueueFile> Cursor<F> {
    /// Reads the file.
    pub(crate) fn open(file: F, path: PathBuf) -> Result<(Self, CursorState), QueueError> {
        let failed = |offset, source| QueueError::system(FileAction::Read, &path, offset, source);
        let length = file.length().map_err(|error| failed(None, error))?;
        let mut slots = [None; 2];
        for (slot, offset) in slots.iter_mut().zip(SLOT_OFFSETS) {
            let mut bytes = [0; SLOT_BYTES];
            let whole = read_full(&file, &mut bytes, offset).map_err(|error| failed(Some(offset), error))?;
            match CursorSlot::decode(&bytes) {
                Ok(found) if whole => *slot = Some(found),
                Err(BadPrefix::Version(found)) => {
                    return Err(QueueError::Version {
                        file: path,
                        found,
                        known: FORMAT_VERSION,
                    });
                }
                _ => {}
            }
        }
        let newest = (0..2).max_by_key(|slot| slots[*slot].map(|found| found.generation));
        let newest = newest.unwrap_or_default();
        let state = match slots[newest] {
            Some(_) => CursorState::Valid,
            None if length == 0 => CursorState::New,
            None => CursorState::Lost,
        };
        let found = slots[newest].unwrap_or(CursorSlot {
            generation: 0,
            acknowledged: 0,
        });
        let cursor = Self {
            file,
            path,
            written: found.acknowledged,
            generation: found.generation,
            // Right once the file was synced.
            slot: 1 - newest,
            durable: 0,
            unknown: state != CursorState::New,
        };
        if state == CursorState::New {
            cursor.reserve();
        }
        Ok((cursor, state))
    }

    /// Takes the block of the file while there is space: otherwise a disk that fills up before the
    /// first acknowledgement would have none for it. Where that fails, the acknowledgement says so.
    fn reserve(&self) {
        let slot = CursorSlot {
            generation: self.generation,
            acknowledged: self.written,
        };
        let offset = SLOT_OFFSETS[1 - self.slot];
        drop(write_full(&self.file, [&slot.encode(), &[]], offset));
    }

    /// First number that is not acknowledged.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// As [`Self::written`], as far as it is on the disk.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// Writes the position, which survives the end of the process. Returns the bytes written.
    pub(crate) fn write(&mut self, acknowledged: u64) -> Result<u64, QueueError> {
        if acknowledged == self.written {
            return Ok(0);
        }
        if self.unknown {
            self.file
                .sync()
                .map_err(|error| self.failed(FileAction::Sync, None, error))?;
            (self.durable, self.unknown) = (self.written, false);
        }
        let slot = CursorSlot {
            generation: self.generation + 1,
            acknowledged,
        };
        let offset = SLOT_OFFSETS[self.slot];
        write_full(&self.file, [&slot.encode(), &[]], offset)
            .map_err(|error| self.failed(FileAction::Write, Some(offset), error))?;
        self.generation += 1;
        self.written = acknowledged;
        Ok(SLOT_BYTES as u64)
    }

    /// Makes the last written position survive power loss.
    pub(crate) fn sync(&mut self) -> Result<(), QueueError> {
        self.file
            .sync()
            .map_err(|error| self.failed(FileAction::Sync, None, error))?;
        if self.durable < self.written && !self.unknown {
            self.slot = 1 - self.slot;
        }
        (self.durable, self.unknown) = (self.written, false);
        Ok(())
    }

    fn failed(&self, action: FileAction, offset: Option<u64>, error: io::Error) -> QueueError {
        QueueError::system(action, &self.path, offset, error)
    }
}
