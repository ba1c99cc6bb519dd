//! The queue: its state, and how records are appended.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::{
    cursor::Cursor,
    error::{FileAction, QueueError},
    recent::RecentRecords,
    record::{MAX_BODY_BYTES, RECORD_HEADER, RecordHead, RecordHeader, RecordId},
    scan::FoundRecord,
    segment::{BLOCK, SEGMENT_HEADER, Segment, encode_header, segment_path},
    settings::QueueSettings,
    status::{BacklogStatus, DropReason, Dropped},
    storage::{QueueFile as _, QueueStorage, SystemStorage, write_full},
};

/// Time without appends after which an empty queue removes its last segment and closes its files.
const IDLE_AFTER: Duration = Duration::from_mins(1);
/// Size at which a segment is removed as soon as all its records are acknowledged, although it
/// could still grow. Below it, a live queue would create and remove a file for each record.
const RECYCLE_BYTES: u64 = 256 << 10;

/// A queue on disk. See the crate's documentation.
///
/// It holds the cursor file open. A queue with records also holds the segment open that grows, and
/// the one that is read.
#[derive(Debug)]
pub struct Queue<S: QueueStorage = SystemStorage> {
    pub(crate) storage: S,
    pub(crate) folder: PathBuf,
    pub(crate) settings: QueueSettings,
    pub(crate) cursor: Cursor<S::File>,
    /// An entry of the folder that is no segment may not be on the disk.
    pub(crate) folder_dirty: bool,
    /// Oldest first. The front record is in the first one.
    pub(crate) segments: VecDeque<Segment>,
    /// Segments that hold nothing any more and could not be removed: number of the first record,
    /// and the bytes of the file in whole blocks.
    pub(crate) unremoved: Vec<(u64, u64)>,
    /// The last segment, if it may grow.
    pub(crate) writer: Option<S::File>,
    /// The first segment, if it is read.
    pub(crate) reader: Option<S::File>,
    /// Number of the next record.
    pub(crate) next: u64,
    /// Records before this number are acknowledged or dropped.
    pub(crate) front: u64,
    /// Offset in the first segment where the search for the front record begins.
    pub(crate) offset: u64,
    /// The front record, once it was found.
    pub(crate) located: Option<FoundRecord>,
    /// The front record was returned.
    pub(crate) returned: bool,
    /// A record that was dropped after it was returned. It is lost only if the caller does not
    /// acknowledge it.
    pub(crate) unsettled: Option<(RecordId, Dropped)>,
    pub(crate) recent: RecentRecords,
    /// Consecutive failed reads of the front record.
    pub(crate) read_failures: u8,
    /// Records before this number may be on the disk.
    pub(crate) synced_end: u64,
    /// What was dropped and not reported to the caller.
    pub(crate) unreported: Vec<Dropped>,
    pub(crate) last_append: Option<SystemTime>,
    /// Counters of this process. What follows from the segments is filled in when asked for.
    pub(crate) totals: BacklogStatus,
}

impl<S: QueueStorage> Queue<S> {
    /// Appends a record. When this returns, the record survives the end of the process; after the
    /// next [`Self::sync`], it survives power loss.
    ///
    /// Returns what was dropped since the last report: the oldest segments, where the queue would
    /// exceed its limit of bytes otherwise, and records that were found damaged.
    ///
    /// # Errors
    /// The record was not appended, and no other one is lost: [`QueueError::DiskFull`],
    /// [`QueueError::ReadOnly`], [`QueueError::TooLarge`], or an error of the system.
    pub fn append(
        &mut self,
        head: RecordHead,
        body: &[u8],
        now: SystemTime,
    ) -> Result<Vec<Dropped>, QueueError> {
        let body_length = self.allowed(body)?;
        let total = RECORD_HEADER + body.len() as u64;
        self.retry_removals();
        self.prepare(total)?;
        let salt = match (&self.writer, self.segments.back()) {
            (Some(_), Some(last)) => last.salt.unwrap_or_default(),
            _ => self.begin_segment()?,
        };
        let header = RecordHeader {
            salt,
            number: self.next,
            acknowledged: self.front,
            head,
            body_length,
            body_checksum: crc32fast::hash(body),
        };
        self.write(&header, body)?;
        let reader_waits = match &self.located {
            Some(located) => self.returned && located.header.number + 1 == self.next,
            None => self.front == self.next,
        };
        self.recent
            .push(self.next, head, body, self.settings.recent_bytes, reader_waits);
        self.next += 1;
        self.last_append = Some(now);
        self.totals.appended_bytes += body.len() as u64;
        Ok(self.report())
    }

    /// Length of a body that the queue can hold at all.
    fn allowed(&self, body: &[u8]) -> Result<u32, QueueError> {
        // The cursor and the segment's header take a block each.
        let limit = self.settings.max_bytes.saturating_sub(2 * BLOCK);
        let limit = limit.min(u64::from(MAX_BODY_BYTES));
        let fitting = u32::try_from(body.len()).ok();
        fitting
            .filter(|length| u64::from(*length) <= limit)
            .ok_or(QueueError::TooLarge {
                bytes: body.len() as u64,
                limit,
            })
    }

    /// Closes the last segment if it is full, and drops the oldest ones until there is room.
    fn prepare(&mut self, total: u64) -> Result<(), QueueError> {
        if let (Some(_), Some(last)) = (&self.writer, self.segments.back())
            && last.length > SEGMENT_HEADER
            && last.length + total > self.settings.segment_limit()
        {
            self.close_writer();
        }
        loop {
            let growth = match (&self.writer, self.segments.back()) {
                (Some(_), Some(last)) => (last.length + total).next_multiple_of(BLOCK) - last.blocks(),
                _ => (SEGMENT_HEADER + total).next_multiple_of(BLOCK),
            };
            if self.disk_bytes() + growth <= self.settings.max_bytes {
                return Ok(());
            }
            if let Some((first, blocks)) = self.unremoved.pop() {
                self.remove_left_over(first, blocks)?;
            } else if self.segments.is_empty() {
                return Ok(());
            } else {
                self.drop_oldest_segment(DropReason::Full)?;
            }
        }
    }

    /// Removes a file that could not be removed before, and that takes space of the queue.
    fn remove_left_over(&mut self, first: u64, blocks: u64) -> Result<(), QueueError> {
        let path = segment_path(&self.folder, first);
        match self.storage.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.unremoved.push((first, blocks));
                Err(QueueError::system(FileAction::Remove, &path, None, error))
            }
            _ => Ok(()),
        }
    }

    /// Creates the file of the next segment; returns its salt. Its header is written together with
    /// its first record.
    fn begin_segment(&mut self) -> Result<u64, QueueError> {
        let path = segment_path(&self.folder, self.next);
        let salt = self
            .storage
            .random()
            .map_err(|error| QueueError::system(FileAction::Randomize, &path, None, error))?;
        let file = self
            .storage
            .create(&path)
            .map_err(|error| QueueError::system(FileAction::Create, &path, None, error))?;
        self.writer = Some(file);
        let mut segment = Segment::new(self.next, Some(salt));
        segment.length = 0;
        self.segments.push_back(segment);
        Ok(salt)
    }

    /// Writes the record at the end of the last segment. If that fails, the segment is as before.
    fn write(&mut self, header: &RecordHeader, body: &[u8]) -> Result<(), QueueError> {
        let (Some(file), Some(segment)) = (&self.writer, self.segments.back_mut()) else {
            let error = io::ErrorKind::NotFound.into();
            return Err(QueueError::system(FileAction::Write, &self.folder, None, error));
        };
        let start = segment.length;
        let mut prefix = Vec::with_capacity(96);
        if start == 0 {
            prefix.extend_from_slice(&encode_header(header.salt));
        }
        prefix.extend_from_slice(&header.encode());
        if let Err(error) = write_full(file, [&prefix, body], start) {
            let path = segment.path(&self.folder);
            self.undo_write(start);
            return Err(QueueError::system(FileAction::Write, &path, Some(start), error));
        }
        let bytes = (prefix.len() + body.len()) as u64;
        segment.length = start + bytes;
        segment.file_bytes = segment.length;
        segment.end = header.number + 1;
        segment.dirty = true;
        segment.unsynced_records += 1;
        segment.unsynced_samples += u64::from(header.head.samples);
        segment.add(&header.head);
        self.totals.written_bytes += bytes;
        if self.segments.len() == 1 && start == 0 {
            self.offset = SEGMENT_HEADER;
        }
        Ok(())
    }

    /// Cuts off what a failed write left. Where that fails, too, the segment does not grow any
    /// more, and readers stop before it.
    fn undo_write(&mut self, length: u64) {
        let Some(segment) = self.segments.back_mut() else {
            return;
        };
        if length == 0 {
            let first = segment.first;
            self.segments.pop_back();
            self.writer = None;
            self.remove_file(first, 0);
            return;
        }
        let cut = self.writer.as_ref().map(|file| file.truncate(length));
        if !matches!(cut, Some(Ok(()))) {
            if let Some(Ok(bytes)) = self.writer.as_ref().map(crate::QueueFile::length) {
                segment.file_bytes = bytes.max(length);
            }
            self.close_writer();
        }
    }

    /// The last segment does not grow any more. It is removed if nothing in it is left.
    pub(crate) fn close_writer(&mut self) {
        if self.writer.take().is_some()
            && let Some(last) = self.segments.back()
            && last.records == 0
        {
            let (first, end, blocks) = (last.first, last.end, last.blocks());
            self.segments.pop_back();
            self.remove_file(first, blocks);
            if self.segments.is_empty() {
                self.restart_front(end);
            }
        }
    }

    /// Removes the file of a segment that holds nothing any more. Tried again later if it fails.
    pub(crate) fn remove_file(&mut self, first: u64, blocks: u64) {
        if let Err(error) = self.storage.remove(&segment_path(&self.folder, first))
            && error.kind() != io::ErrorKind::NotFound
        {
            self.unremoved.push((first, blocks));
        }
    }

    fn retry_removals(&mut self) {
        for (first, blocks) in std::mem::take(&mut self.unremoved) {
            self.remove_file(first, blocks);
        }
    }

    /// The first segment is gone: the search for the front record continues at the beginning of the
    /// next one, with this number or a later one.
    pub(crate) fn restart_front(&mut self, front: u64) {
        self.front = self.front.max(front);
        self.offset = SEGMENT_HEADER;
        self.located = None;
        self.returned = false;
        self.reader = None;
        self.read_failures = 0;
        self.recent.forget_before(self.front);
    }

    /// Counts what was dropped, for the next report.
    pub(crate) fn count_dropped(&mut self, dropped: Dropped) {
        self.totals.dropped_records += dropped.records;
        self.totals.dropped_samples += dropped.samples;
        let same = self
            .unreported
            .iter_mut()
            .find(|other| other.reason == dropped.reason);
        match same {
            Some(same) => {
                same.records += dropped.records;
                same.samples += dropped.samples;
                same.bytes += dropped.bytes;
            }
            None if dropped.records > 0 => self.unreported.push(dropped),
            None => {}
        }
    }

    /// What was dropped since the last report, also what [`Self::front`] has counted.
    pub fn report(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.unreported)
    }

    /// Writes the position of the front to the cursor file.
    pub(crate) fn write_cursor(&mut self) -> Result<(), QueueError> {
        self.totals.written_bytes += self.cursor.write(self.front)?;
        Ok(())
    }

    /// Bytes of all files, in whole blocks; the cursor file is one.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let segments: u64 = self.segments.iter().map(Segment::blocks).sum();
        let unremoved: u64 = self.unremoved.iter().map(|(_, blocks)| blocks).sum();
        BLOCK + segments + unremoved
    }

    /// Removes the last segment of an empty queue, if nothing was appended for a while.
    pub(crate) fn close_if_idle(&mut self, now: SystemTime) {
        let idle = self
            .last_append
            .is_none_or(|last| now.duration_since(last).is_ok_and(|idle| idle >= IDLE_AFTER));
        if idle && self.segments.len() == 1 && self.segments[0].records == 0 {
            self.close_writer();
            self.reader = None;
        }
    }

    /// Removes the last segment when all its records are acknowledged and it is not small.
    pub(crate) fn recycle(&mut self) {
        if self.segments.len() == 1
            && self.segments[0].records == 0
            && self.segments[0].length >= RECYCLE_BYTES.min(self.settings.segment_limit())
        {
            self.close_writer();
        }
    }

    pub fn status(&self) -> BacklogStatus {
        let mut status = BacklogStatus {
            disk_bytes: self.disk_bytes(),
            segments: self.segments.len(),
            ..self.totals
        };
        for segment in &self.segments {
            status.records += segment.records;
            status.samples += segment.samples;
            status.unsynced_records += segment.unsynced_records;
            status.unsynced_samples += segment.unsynced_samples;
        }
        let oldest = self.segments.iter().filter(|segment| segment.records > 0);
        status.oldest_ms = match self.located {
            Some(located) => Some(located.header.head.oldest_ms),
            None => oldest.map(|segment| segment.oldest_ms).min(),
        };
        status
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Number of the next record that is appended.
    pub fn next_id(&self) -> RecordId {
        RecordId(self.next)
    }
}
