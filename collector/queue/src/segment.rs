//! A segment file: its name, its header, and what the queue knows of it.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{
    cursor::{BadPrefix, check_prefix, encode_prefix},
    record::{RecordHead, RecordHeader, read_u32, read_u64},
    storage::{QueueFile, read_full},
};

/// Bytes of a segment's header: magic, version and checksum, then the salt and its checksum.
pub(crate) const SEGMENT_HEADER: u64 = 32;
/// Size of a block of a filesystem, for the limit on bytes.
pub(crate) const BLOCK: u64 = BLOCK_LENGTH as u64;
/// As [`BLOCK`], for buffers.
pub(crate) const BLOCK_LENGTH: usize = 4096;
const MAGIC: [u8; 8] = *b"\xf7vqsegm\n";
const SUFFIX: &str = ".records";

/// What the queue knows of one segment file.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    /// Number of its first record; names the file.
    pub(crate) first: u64,
    /// Number after its last record.
    pub(crate) end: u64,
    /// Salt of its records; `None` if header and first record are damaged.
    pub(crate) salt: Option<u64>,
    /// Bytes up to the end of its last record.
    pub(crate) length: u64,
    /// Bytes of the file; more than `length` if its torn tail could not be cut.
    pub(crate) file_bytes: u64,
    /// Records that are neither acknowledged nor dropped.
    pub(crate) records: u64,
    /// Samples of these.
    pub(crate) samples: u64,
    /// Oldest time stamp of its records, in milliseconds since 1970.
    pub(crate) oldest_ms: i64,
    /// Newest time stamp of its records, in milliseconds since 1970.
    pub(crate) newest_ms: i64,
    /// It has content that may not be on the disk.
    pub(crate) dirty: bool,
    /// A sync failed. The kernel forgets which pages were not written, so a later success would
    /// mean nothing.
    pub(crate) sync_failed: bool,
    /// Its entry in the folder is on the disk.
    pub(crate) entry_durable: bool,
    /// Records before this number are on the disk.
    pub(crate) durable_end: u64,
    /// Records that this process appended, and that are neither on the disk nor acknowledged.
    pub(crate) unsynced_records: u64,
    /// Samples of these.
    pub(crate) unsynced_samples: u64,
}

impl Segment {
    pub(crate) fn new(first: u64, salt: Option<u64>) -> Self {
        Self {
            first,
            end: first,
            salt,
            length: SEGMENT_HEADER,
            file_bytes: 0,
            records: 0,
            samples: 0,
            oldest_ms: i64::MAX,
            newest_ms: i64::MIN,
            dirty: true,
            sync_failed: false,
            entry_durable: false,
            durable_end: first,
            unsynced_records: 0,
            unsynced_samples: 0,
        }
    }

    /// Counts a record that is not acknowledged.
    pub(crate) fn add(&mut self, head: &RecordHead) {
        self.records += 1;
        self.samples += u64::from(head.samples);
        self.oldest_ms = self.oldest_ms.min(head.oldest_ms);
        self.newest_ms = self.newest_ms.max(head.newest_ms);
    }

    /// Counts a record that is acknowledged or dropped. Whether this process appended it and it
    /// was not on the disk.
    pub(crate) fn subtract(&mut self, number: u64, head: &RecordHead) -> bool {
        self.records = self.records.saturating_sub(1);
        self.samples = self.samples.saturating_sub(u64::from(head.samples));
        // All records of a segment are of one process, and recovered ones are not counted.
        let unsynced = number >= self.durable_end && self.unsynced_records > 0;
        if unsynced {
            self.unsynced_records -= 1;
            self.unsynced_samples = self.unsynced_samples.saturating_sub(u64::from(head.samples));
        }
        unsynced
    }

    /// Bytes on the disk, in whole blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.file_bytes.next_multiple_of(BLOCK)
    }

    pub(crate) fn path(&self, folder: &Path) -> PathBuf {
        segment_path(folder, self.first)
    }
}

/// Path of the segment whose first record has this number.
pub(crate) fn segment_path(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first:016x}{SUFFIX}"))
}

/// The number of the first record, from a file's name.
pub(crate) fn parse_name(name: &str) -> Option<u64> {
    let number = name.strip_suffix(SUFFIX)?;
    let canonical = number.len() == 16
        && number
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let number = canonical.then(|| u64::from_str_radix(number, 16))?.ok()?;
    (number < u64::MAX >> 1).then_some(number)
}

/// The first bytes of a segment.
pub(crate) fn encode_header(salt: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&encode_prefix(MAGIC));
    bytes[16..24].copy_from_slice(&salt.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[16..24]);
    bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Reads the salt of a segment. If its header is damaged, takes it from the first record, but from
/// no other: that one stands where no body can.
pub(crate) fn read_salt(file: &impl QueueFile) -> io::Result<Result<u64, BadPrefix>> {
    let mut bytes = [0; 32];
    if read_full(file, &mut bytes, 0)? {
        match check_prefix(&bytes, MAGIC) {
            Ok(()) if read_u32(&bytes, 24) == crc32fast::hash(&bytes[16..24]) => {
                return Ok(Ok(read_u64(&bytes, 16)));
            }
            Err(BadPrefix::Version(version)) => return Ok(Err(BadPrefix::Version(version))),
            _ => {}
        }
    }
    let mut bytes = [0; 64];
    let first = read_full(file, &mut bytes, SEGMENT_HEADER)?
        .then(|| RecordHeader::decode(&bytes))
        .flatten();
    Ok(first.map(|header| header.salt).ok_or(BadPrefix::Damaged))
}
