//! A record, and its header on disk.

use std::fmt;

/// Maximum bytes of a record's body.
pub const MAX_BODY_BYTES: u32 = 64 << 20;
/// Bytes of a record's header on disk.
pub(crate) const RECORD_HEADER: u64 = RECORD_HEADER_LENGTH as u64;
/// As [`RECORD_HEADER`], for buffers.
pub(crate) const RECORD_HEADER_LENGTH: usize = 64;
/// First bytes of a record's header.
pub(crate) const RECORD_MAGIC: [u8; 4] = *b"\xf7vqr";

/// Number of a record in its queue. Numbers only grow, also over restarts; after power loss, those
/// of lost records may be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(pub(crate) u64);

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is known of a record without its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHead {
    /// Number of samples in the body.
    pub samples: u32,
    /// Time stamp of the oldest sample, in milliseconds since 1970.
    pub oldest_ms: i64,
    /// Time stamp of the newest sample, in milliseconds since 1970.
    pub newest_ms: i64,
    /// Opaque to the queue, e.g. how the body is compressed.
    pub kind: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub id: RecordId,
    pub head: RecordHead,
    pub body: Vec<u8>,
}

/// The header of a record on disk, little-endian:
///
/// ```text
///  0 magic              4 checksum of bytes 8 to 63
///  8 salt of the queue 16 number             24 acknowledged
/// 32 oldest_ms         40 newest_ms          48 samples
/// 52 length of body    56 checksum of body   60 kind           61 zeros
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Secret random number of the segment. A body may hold bytes that a guest chose, and they must
    /// not pass for a record when a damaged file is searched for the next one.
    pub(crate) salt: u64,
    pub(crate) number: u64,
    /// First number that was not acknowledged when this record was appended.
    pub(crate) acknowledged: u64,
    /// What the caller passed.
    pub(crate) head: RecordHead,
    /// Bytes of the body, which follows.
    pub(crate) body_length: u32,
    /// CRC-32 of the body.
    pub(crate) body_checksum: u32,
}

impl RecordHeader {
    /// Bytes of the record on disk.
    pub(crate) fn total(&self) -> u64 {
        RECORD_HEADER + u64::from(self.body_length)
    }

    pub(crate) fn encode(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[8..16].copy_from_slice(&self.salt.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.acknowledged.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.head.oldest_ms.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.head.newest_ms.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.head.samples.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.body_length.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.body_checksum.to_le_bytes());
        bytes[60] = self.head.kind;
        let checksum = crc32fast::hash(&bytes[8..]);
        bytes[..4].copy_from_slice(&RECORD_MAGIC);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The header in these bytes, or `None` if they are none or damaged.
    pub(crate) fn decode(bytes: &[u8; 64]) -> Option<Self> {
        if bytes[..4] != RECORD_MAGIC || read_u32(bytes, 4) != crc32fast::hash(&bytes[8..]) {
            return None;
        }
        let header = Self {
            salt: read_u64(bytes, 8),
            number: read_u64(bytes, 16),
            acknowledged: read_u64(bytes, 24),
            head: RecordHead {
                samples: read_u32(bytes, 48),
                oldest_ms: read_u64(bytes, 32).cast_signed(),
                newest_ms: read_u64(bytes, 40).cast_signed(),
                kind: bytes[60],
            },
            body_length: read_u32(bytes, 52),
            body_checksum: read_u32(bytes, 56),
        };
        // A number at the end of the range would leave none for the next record.
        let valid = header.body_length <= MAX_BODY_BYTES
            && header.acknowledged <= header.number
            && header.number < u64::MAX >> 1
            && bytes[61..] == [0; 3];
        valid.then_some(header)
    }
}

/// The little-endian number at this offset, which must be inside.
pub(crate) fn read_u64(bytes: &[u8], offset: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(number)
}

/// The little-endian number at this offset, which must be inside.
pub(crate) fn read_u32(bytes: &[u8], offset: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(number)
}
