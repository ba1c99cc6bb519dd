//! Reads and acknowledges the oldest record.

use std::io;

use crate::{
    error::{FileAction, QueueError},
    queue::Queue,
    record::{RECORD_HEADER_LENGTH, Record, RecordHeader, RecordId},
    scan::{FoundRecord, Scan},
    segment::{BLOCK, read_salt},
    status::{DropReason, Dropped},
    storage::{QueueStorage, read_full},
};

/// Failed reads of a record before it is given up. Each one is an error of its own.
const READ_ATTEMPTS: u8 = 3;

impl<S: QueueStorage> Queue<S> {
    /// The oldest record that is not acknowledged; the same one until it is acknowledged or
    /// dropped. Damaged records are passed over and counted. A record that was dropped after it was
    /// returned is counted now: the caller has not acknowledged it.
    ///
    /// # Errors
    /// The record cannot be read: file, offset, error of the system. The next call tries again.
    /// After three failed reads, the record is passed over and counted, so that one bad sector does
    /// not hold back what follows.
    pub fn front(&mut self) -> Result<Option<Record>, QueueError> {
        if let Some((_, dropped)) = self.unsettled.take() {
            self.count_dropped(dropped);
        }
        let front = self.find_front();
        if self.front > self.cursor.written() {
            // What was passed over is not counted again after a restart.
            self.write_cursor_later();
        }
        front
    }

    fn find_front(&mut self) -> Result<Option<Record>, QueueError> {
        while let Some(located) = self.locate()? {
            let header = located.header;
            if let Some(body) = self.recent.take(header.number) {
                return Ok(Some(self.hand_out(&header, body)));
            }
            match self.read_body(&located)? {
                Some(body) => return Ok(Some(self.hand_out(&header, body))),
                None => self.pass_over(DropReason::Corrupt),
            }
        }
        Ok(None)
    }

    fn hand_out(&mut self, header: &RecordHeader, body: Vec<u8>) -> Record {
        self.returned = true;
        self.read_failures = 0;
        Record {
            id: RecordId(header.number),
            head: header.head,
            body,
        }
    }

    /// Removes a record from the queue that [`Self::front`] returned. An older one, which was
    /// dropped meanwhile, is not counted as dropped, and changes nothing else.
    ///
    /// # Errors
    /// [`QueueError::NotFront`], or the position could not be written: then the record is not
    /// returned again by this process, but may be after a restart.
    pub fn acknowledge(&mut self, id: RecordId) -> Result<(), QueueError> {
        if id.0 < self.front {
            self.unsettled.take_if(|(unsettled, _)| *unsettled == id);
            return Ok(());
        }
        if !self.returned || self.located.is_none_or(|located| located.header.number != id.0) {
            return Err(QueueError::NotFront {
                id,
                front: RecordId(self.front),
            });
        }
        if let Some((header, unsynced)) = self.advance()
            && unsynced
        {
            self.totals.accepted_records += 1;
            self.totals.accepted_samples += u64::from(header.head.samples);
        }
        let written = self.write_cursor();
        self.leave_finished_segments();
        self.recycle();
        written
    }

    /// Moves the front behind the located record. Returns its header, and whether this process
    /// appended it and did not sync it.
    fn advance(&mut self) -> Option<(RecordHeader, bool)> {
        let located = self.located.take()?;
        let header = located.header;
        self.returned = false;
        self.read_failures = 0;
        self.offset = located.end();
        self.front = header.number + 1;
        self.recent.forget_before(self.front);
        let segment = self.segments.front_mut()?;
        Some((header, segment.subtract(header.number, &header.head)))
    }

    /// Drops the located record.
    pub(crate) fn pass_over(&mut self, reason: DropReason) {
        // A record that cannot be read again is damaged whatever becomes of its copy.
        let is_unsettled = reason != DropReason::Corrupt && self.returned_record(reason).is_some();
        if let Some((header, _)) = self.advance()
            && !is_unsettled
        {
            self.count_dropped(Dropped {
                records: 1,
                samples: u64::from(header.head.samples),
                bytes: header.total(),
                reason,
            });
        }
    }

    /// Finds the oldest record that is not acknowledged.
    pub(crate) fn locate(&mut self) -> Result<Option<FoundRecord>, QueueError> {
        loop {
            if self.located.is_some() {
                return Ok(self.located);
            }
            self.leave_finished_segments();
            let Some(segment) = self.segments.front() else {
                return Ok(None);
            };
            let length = segment.length;
            if self.offset >= length {
                return Ok(None);
            }
            if let Some((head, body)) = self.recent.peek(self.front) {
                self.located = Some(FoundRecord {
                    offset: self.offset,
                    header: RecordHeader {
                        salt: segment.salt.unwrap_or_default(),
                        number: self.front,
                        acknowledged: 0,
                        head,
                        body_length: u32::try_from(body).unwrap_or_default(),
                        body_checksum: 0,
                    },
                });
                continue;
            }
            self.open_reader()?;
            match self.search()? {
                Some(found) => self.located = Some(found),
                None => self.offset = length,
            }
        }
    }

    /// Searches the first segment for the front record.
    fn search(&mut self) -> Result<Option<FoundRecord>, QueueError> {
        let (from, front) = (self.offset, self.front);
        let (Some(file), Some(segment)) = (&self.reader, self.segments.front_mut()) else {
            return Ok(None);
        };
        // It may have been unreadable when the queue was opened.
        if segment.salt.is_none() {
            segment.salt = read_salt(file).ok().and_then(Result::ok);
        }
        let scan = Scan {
            file,
            length: segment.length,
            salt: segment.salt.unwrap_or_default(),
        };
        let error = match scan.record_at(from, front) {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => return Ok(scan.search(from + 1, front).0),
            Err(error) => error,
        };
        if self.read_failures < READ_ATTEMPTS {
            return self.count_failure(from, error).map(|()| None);
        }
        let found = scan.search((from / BLOCK + 1) * BLOCK, front).0;
        self.read_failures = 0;
        Ok(found)
    }

    /// Counts a failed read of the front record. `Ok` if it was the last attempt.
    fn count_failure(&mut self, offset: u64, error: io::Error) -> Result<(), QueueError> {
        self.read_failures += 1;
        if self.read_failures > READ_ATTEMPTS {
            self.read_failures = 0;
            return Ok(());
        }
        // The next attempt opens the file again.
        self.reader = None;
        let first = self.segments.front();
        let path = first.map_or_else(|| self.folder.clone(), |first| first.path(&self.folder));
        Err(QueueError::system(FileAction::Read, &path, Some(offset), error))
    }

    /// Opens the first segment for reading. If its file is missing, there is no reader, and the
    /// search goes on behind the segment.
    fn open_reader(&mut self) -> Result<(), QueueError> {
        if self.reader.is_none()
            && let Some(segment) = self.segments.front()
        {
            let path = segment.path(&self.folder);
            match self.storage.open(&path, false) {
                Ok(file) => self.reader = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.offset = segment.length,
                Err(error) => return Err(QueueError::system(FileAction::Open, &path, None, error)),
            }
        }
        Ok(())
    }

    /// Removes segments from the front that were read to their end. What is still counted in them
    /// is missing there, and counted as damaged.
    fn leave_finished_segments(&mut self) {
        while let Some(segment) = self.segments.front_mut() {
            if self.offset < segment.length || self.located.is_some() {
                return;
            }
            let missing = Dropped {
                records: std::mem::take(&mut segment.records),
                samples: std::mem::take(&mut segment.samples),
                bytes: 0,
                reason: DropReason::Corrupt,
            };
            segment.unsynced_records = 0;
            segment.unsynced_samples = 0;
            let (first, end, blocks) = (segment.first, segment.end, segment.blocks());
            self.count_dropped(missing);
            self.front = self.front.max(end);
            if self.segments.len() == 1 && self.writer.is_some() {
                return;
            }
            self.segments.pop_front();
            self.remove_file(first, blocks);
            self.restart_front(end);
        }
    }

    /// The body of the record; `None` if it is damaged.
    fn read_body(&mut self, located: &FoundRecord) -> Result<Option<Vec<u8>>, QueueError> {
        self.open_reader()?;
        let Some(file) = &self.reader else {
            return Ok(None);
        };
        let mut bytes = vec![0; RECORD_HEADER_LENGTH + located.header.body_length as usize];
        match read_full(file, &mut bytes, located.offset) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => return self.count_failure(located.offset, error).map(|()| None),
        }
        // A record that was located in memory has no checksum there: the header on the disk counts.
        let header = bytes.first_chunk().and_then(RecordHeader::decode);
        let body = bytes.split_off(RECORD_HEADER_LENGTH);
        let valid = header.is_some_and(|header| {
            header.number == located.header.number
                && header.salt == located.header.salt
                && header.body_length == located.header.body_length
                && header.body_checksum == crc32fast::hash(&body)
        });
        Ok(valid.then_some(body))
    }
}
