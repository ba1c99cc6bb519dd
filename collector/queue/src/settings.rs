//! Limits of a queue.

use std::time::Duration;

/// Segments per queue that `max_bytes` allows at least, so that one that is dropped is a small
/// part.
const MIN_SEGMENTS: u64 = 8;
/// Largest segment file: bounds what a recovery reads of one file.
pub(crate) const MAX_SEGMENT_BYTES: u64 = 1 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSettings {
    /// Maximum bytes of all files of the queue, each rounded up to blocks of 4 KiB. Before an
    /// append would exceed it, the oldest segments are dropped.
    pub max_bytes: u64,
    /// Records whose newest sample is older are dropped by [`crate::Queue::expire`].
    pub max_age: Duration,
    /// Bytes at which a segment file is closed and the next one begins. At most an eighth of
    /// `max_bytes` is used, because segments are dropped whole.
    pub segment_bytes: u64,
    /// Maximum bytes of records kept in memory while the reader follows the writer, so that a live
    /// tail causes no reads. A queue with a backlog keeps none.
    pub recent_bytes: usize,
}

impl QueueSettings {
    /// These limits, with segments of up to 16 MiB and up to 256 KiB of recent records in memory.
    pub fn new(max_bytes: u64, max_age: Duration) -> Self {
        Self {
            max_bytes,
            max_age,
            segment_bytes: 16 << 20,
            recent_bytes: 256 << 10,
        }
    }

    /// Bytes at which a segment is closed.
    pub(crate) fn segment_limit(&self) -> u64 {
        self.segment_bytes
            .min(self.max_bytes / MIN_SEGMENTS)
            .min(MAX_SEGMENT_BYTES)
    }
}
