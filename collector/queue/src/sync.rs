//! Makes records survive power loss.

use crate::{
    error::{FileAction, QueueError},
    queue::Queue,
    status::Durable,
    storage::{QueueFile as _, QueueStorage},
};

impl<S: QueueStorage> Queue<S> {
    /// Waits until everything that was appended and not acknowledged is on the disk. Records that
    /// were acknowledged before need no sync, and cause none.
    ///
    /// # Errors
    /// The disk reported an error. Records of the file concerned stay in the queue, but are never
    /// counted as durable: the kernel forgets which of their bytes were not written. The other
    /// files were synced nevertheless, and the next call, or [`Self::status`], says what became
    /// durable.
    pub fn sync(&mut self) -> Result<Durable, QueueError> {
        let mut failed = self.sync_segments().err();
        if failed.is_none() {
            failed = self.sync_entries().err();
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let durable = self.count_durable();
        // After power loss, a record that is on the disk would be returned again if the disk did
        // not know that it is acknowledged. An earlier write may have failed, which was reported
        // then.
        if self.front.min(self.synced_end) > self.cursor.written() {
            self.write_cursor_later();
        }
        if self.cursor.durable() < self.cursor.written().min(self.synced_end) {
            self.cursor.sync()?;
        }
        Ok(durable)
    }

    /// Syncs the content of segments with records that are not acknowledged.
    fn sync_segments(&mut self) -> Result<(), QueueError> {
        let mut failed = Ok(());
        let last = self.segments.len().saturating_sub(1);
        for index in 0..self.segments.len() {
            let segment = &self.segments[index];
            if !segment.dirty || segment.sync_failed || segment.records == 0 {
                continue;
            }
            let path = segment.path(&self.folder);
            let synced = match &self.writer {
                Some(writer) if index == last => writer.sync(),
                _ => self.storage.open(&path, false).and_then(|file| file.sync()),
            };
            let segment = &mut self.segments[index];
            match synced {
                Ok(()) => segment.dirty = false,
                Err(error) => {
                    segment.sync_failed = true;
                    if index == last {
                        self.writer = None;
                    }
                    failed = failed.and(Err(QueueError::system(FileAction::Sync, &path, None, error)));
                }
            }
        }
        failed
    }

    /// Syncs the folder, if it has entries of files that were synced for the first time.
    fn sync_entries(&mut self) -> Result<(), QueueError> {
        let new = |segment: &crate::segment::Segment| !segment.dirty && !segment.entry_durable;
        if !self.folder_dirty && !self.segments.iter().any(new) {
            return Ok(());
        }
        let synced = self.storage.sync_folder(&self.folder);
        for segment in self.segments.iter_mut().filter(|segment| new(segment)) {
            segment.entry_durable = synced.is_ok();
            segment.sync_failed |= synced.is_err();
        }
        if synced.is_err() {
            // A new segment gets an entry of its own.
            self.close_writer();
        }
        self.folder_dirty &= synced.is_err();
        synced.map_err(|error| QueueError::system(FileAction::Sync, &self.folder, None, error))
    }

    fn count_durable(&mut self) -> Durable {
        let mut durable = Durable::default();
        for segment in &mut self.segments {
            if segment.dirty || segment.sync_failed || !segment.entry_durable {
                continue;
            }
            segment.durable_end = segment.end;
            durable.records += std::mem::take(&mut segment.unsynced_records);
            durable.samples += std::mem::take(&mut segment.unsynced_samples);
            self.synced_end = self.synced_end.max(segment.end);
        }
        self.totals.accepted_records += durable.records;
        self.totals.accepted_samples += durable.samples;
        durable
    }
}
