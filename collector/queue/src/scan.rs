//! Finds records in a segment, also after damage.

use std::io;

use crate::{
    record::{RECORD_HEADER, RECORD_HEADER_LENGTH, RECORD_MAGIC, RecordHeader},
    segment::{BLOCK, BLOCK_LENGTH},
    storage::{QueueFile, read_full},
};

/// Reads headers of one segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan<'f, F> {
    pub(crate) file: &'f F,
    /// Bytes of the file that may hold records.
    pub(crate) length: u64,
    /// Salt that all its records have.
    pub(crate) salt: u64,
}

/// A valid header, and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundRecord {
    pub(crate) offset: u64,
    pub(crate) header: RecordHeader,
}

impl FoundRecord {
    /// Offset of what follows the record.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.header.total()
    }
}

impl<F: QueueFile> Scan<'_, F> {
    /// The record at exactly this offset, if its header is valid, its number is at least `next`,
    /// and its body fits into the file.
    pub(crate) fn record_at(&self, offset: u64, next: u64) -> io::Result<Option<FoundRecord>> {
        let mut bytes = [0; RECORD_HEADER_LENGTH];
        if !read_full(self.file, &mut bytes, offset)? {
            return Ok(None);
        }
        Ok(self.accept(&bytes, offset, next))
    }

    fn accept(&self, bytes: &[u8; 64], offset: u64, next: u64) -> Option<FoundRecord> {
        let header = RecordHeader::decode(bytes)?;
        let found = FoundRecord { offset, header };
        (header.salt == self.salt && header.number >= next && found.end() <= self.length).then_some(found)
    }

    /// The first record at or after this offset. Blocks that cannot be read are passed over; the
    /// second value says where the first one is.
    pub(crate) fn search(&self, from: u64, next: u64) -> (Option<FoundRecord>, Option<(u64, io::Error)>) {
        let mut unreadable = None;
        let mut buffer = vec![0; BLOCK_LENGTH + RECORD_HEADER_LENGTH];
        let mut base = from;
        while base + RECORD_HEADER <= self.length {
            let wanted = (self.length - base).min(buffer.len() as u64);
            #[expect(clippy::cast_possible_truncation, reason = "at most the length of the buffer")]
            let part = &mut buffer[..wanted as usize];
            match read_full(self.file, part, base) {
                Ok(true) => {}
                // The file was cut meanwhile.
                Ok(false) => break,
                Err(error) => {
                    unreadable.get_or_insert((base, error));
                    base = (base / BLOCK + 1) * BLOCK;
                    continue;
                }
            }
            let candidates = part.len() - RECORD_MAGIC.len();
            for at in 0..=candidates {
                if part[at..at + 4] != RECORD_MAGIC {
                    continue;
                }
                let Some(bytes) = part[at..].first_chunk::<64>() else {
                    break;
                };
                if let Some(found) = self.accept(bytes, base + at as u64, next) {
                    return (Some(found), unreadable);
                }
            }
            base += BLOCK;
        }
        (None, unreadable)
    }
}
