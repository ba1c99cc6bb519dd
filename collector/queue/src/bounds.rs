//! Keeps a queue within its limits of bytes and age.

use std::time::{SystemTime, UNIX_EPOCH};

use std::io;

use crate::{
    error::{FileAction, QueueError},
    queue::Queue,
    record::RecordId,
    settings::QueueSettings,
    status::{DropReason, Dropped},
    storage::QueueStorage,
};

/// Milliseconds since 1970.
fn milliseconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |before| -before),
    }
}

impl<S: QueueStorage> Queue<S> {
    /// Drops records whose newest sample is older than the limit of age, up to the first record
    /// that is not. Call it every few seconds: it also closes the files of a queue that is empty
    /// for a minute. Returns what was dropped since the last report.
    ///
    /// A record that cannot be read stops it; [`Self::front`] reports the error.
    pub fn expire(&mut self, now: SystemTime) -> Vec<Dropped> {
        let age = i64::try_from(self.settings.max_age.as_millis()).unwrap_or(i64::MAX);
        let limit = milliseconds(now).saturating_sub(age);
        let front = self.front;
        // Whole segments need no reads.
        while let Some(segment) = self.segments.front()
            && segment.records > 0
            && segment.newest_ms < limit
        {
            if self.drop_oldest_segment(DropReason::TooOld).is_err() {
                break;
            }
        }
        while self
            .segments
            .front()
            .is_some_and(|segment| segment.oldest_ms < limit)
            && let Ok(Some(located)) = self.locate()
            && located.header.head.newest_ms < limit
        {
            self.pass_over(DropReason::TooOld);
        }
        if self.front != front {
            self.write_cursor_later();
        }
        self.close_if_idle(now);
        self.report()
    }

    /// Sets other limits, and drops the oldest segments that exceed them. Returns what was dropped
    /// since the last report.
    pub fn set_limits(&mut self, settings: QueueSettings, now: SystemTime) -> Vec<Dropped> {
        self.settings = settings;
        while self.disk_bytes() > self.settings.max_bytes && !self.segments.is_empty() {
            if self.drop_oldest_segment(DropReason::Full).is_err() {
                break;
            }
        }
        self.expire(now)
    }

    /// Removes the first segment with all its records. If the file cannot be removed, nothing is
    /// dropped.
    pub(crate) fn drop_oldest_segment(&mut self, reason: DropReason) -> Result<(), QueueError> {
        let Some(segment) = self.segments.front() else {
            return Ok(());
        };
        let path = segment.path(&self.folder);
        match self.storage.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(QueueError::system(FileAction::Remove, &path, None, error));
            }
            _ => {}
        }
        let mut dropped = Dropped {
            records: segment.records,
            samples: segment.samples,
            bytes: segment.length.saturating_sub(self.offset),
            reason,
        };
        let end = segment.end;
        if let Some(returned) = self.returned_record(reason) {
            dropped.records = dropped.records.saturating_sub(returned.records);
            dropped.samples = dropped.samples.saturating_sub(returned.samples);
            dropped.bytes = dropped.bytes.saturating_sub(returned.bytes);
        }
        self.segments.pop_front();
        if self.segments.is_empty() {
            self.writer = None;
        }
        if dropped.records > 0 {
            self.count_dropped(dropped);
        }
        self.restart_front(end);
        self.write_cursor_later();
        Ok(())
    }

    /// The front record, if it was returned: it is dropped now, and counted when it is known that
    /// the caller does not acknowledge it. A receiver may have its samples.
    pub(crate) fn returned_record(&mut self, reason: DropReason) -> Option<Dropped> {
        let header = self.located.filter(|_| self.returned)?.header;
        let dropped = Dropped {
            records: 1,
            samples: u64::from(header.head.samples),
            bytes: header.total(),
            reason,
        };
        self.unsettled = Some((RecordId(header.number), dropped));
        Some(dropped)
    }

    /// Writes the cursor where a failure changes nothing now: the next write includes it.
    pub(crate) fn write_cursor_later(&mut self) {
        drop(self.write_cursor());
    }
}
