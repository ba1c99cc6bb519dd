//! What a queue says about itself.

/// Why records were dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// The queue reached its limit of bytes; these were the oldest.
    Full,
    /// All samples were older than the limit of age.
    TooOld,
    /// Damaged on the disk, unreadable, or missing.
    Corrupt,
}

/// Records that will not be returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    pub records: u64,
    /// Number of their samples. 0 for records of which only the number is known.
    pub samples: u64,
    /// Their bytes on disk, or bytes of damaged parts.
    pub bytes: u64,
    pub reason: DropReason,
}

/// Records that a sync made durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Durable {
    /// Number of records that this process appended, that were not acknowledged before, and that
    /// now survive power loss.
    pub records: u64,
    pub samples: u64,
}

/// What opening a queue found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovery {
    /// Records that are not acknowledged.
    pub records: u64,
    pub samples: u64,
    /// Bytes of records that were not written completely before a crash, and were cut off.
    pub torn_bytes: u64,
    /// Bytes between records that are not readable as a record.
    pub corrupt_bytes: u64,
    /// Blocks that could not be read: file, offset, and error of the system. At most one for each
    /// damaged part.
    pub unreadable: Vec<String>,
    /// The cursor file had content, and none was valid: acknowledged records may be returned again.
    pub cursor_lost: bool,
    /// Records that are missing, and records beyond limits that became smaller.
    pub dropped: Vec<Dropped>,
}

/// State of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BacklogStatus {
    /// Records that are not acknowledged.
    pub records: u64,
    pub samples: u64,
    /// Bytes of all files, in whole blocks.
    pub disk_bytes: u64,
    /// Number of segment files.
    pub segments: usize,
    /// Time stamp of the oldest sample that is not acknowledged, in milliseconds since 1970.
    pub oldest_ms: Option<i64>,
    /// Records that this process appended, and that are neither durable nor acknowledged.
    pub unsynced_records: u64,
    pub unsynced_samples: u64,
    /// Records that this process appended, and that became durable or were acknowledged, each once.
    pub accepted_records: u64,
    pub accepted_samples: u64,
    /// Bytes of bodies that this process appended.
    pub appended_bytes: u64,
    /// Bytes that this process wrote to files of the queue.
    pub written_bytes: u64,
    /// Records that this process dropped.
    pub dropped_records: u64,
    pub dropped_samples: u64,
}
