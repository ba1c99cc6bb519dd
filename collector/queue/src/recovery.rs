//! Opens a queue: finds what is left in its folder.

use std::{collections::VecDeque, io, path::Path, time::SystemTime};

use crate::{
    cursor::{BadPrefix, CURSOR_NAME, Cursor, CursorState, FORMAT_VERSION},
    error::{FileAction, QueueError},
    queue::Queue,
    recent::RecentRecords,
    record::RECORD_HEADER,
    scan::{FoundRecord, Scan},
    segment::{SEGMENT_HEADER, Segment, parse_name, read_salt, segment_path},
    settings::{MAX_SEGMENT_BYTES, QueueSettings},
    status::{BacklogStatus, DropReason, Dropped, Recovery},
    storage::{QueueFile, QueueStorage, SystemStorage},
};

impl Queue<SystemStorage> {
    /// Opens the queue in this folder, or creates it. Reads the headers of all records.
    ///
    /// # Errors
    /// [`QueueError::Locked`], [`QueueError::Version`], or an error of the system. Damage is no
    /// error: what can be read is in the queue, and the rest is counted.
    pub fn open(
        folder: &Path,
        settings: QueueSettings,
        now: SystemTime,
    ) -> Result<(Self, Recovery), QueueError> {
        Self::open_in(SystemStorage, folder, settings, now)
    }
}

/// A segment file before it is read.
struct SegmentFile<F> {
    first: u64,
    file: F,
    bytes: u64,
    salt: Option<u64>,
    /// Why the salt could not be read.
    unreadable: Option<io::Error>,
}

struct ScannedSegment {
    records: Vec<FoundRecord>,
    /// Offset of the end of the last record.
    end: u64,
    /// Bytes between records that belong to none.
    corrupt_bytes: u64,
    unreadable: Option<(u64, io::Error)>,
}

impl<S: QueueStorage> Queue<S> {
    /// As [`Queue::open`], with other file operations.
    ///
    /// # Errors
    /// As there.
    pub fn open_in(
        storage: S,
        folder: &Path,
        settings: QueueSettings,
        now: SystemTime,
    ) -> Result<(Self, Recovery), QueueError> {
        storage
            .create_folder(folder)
            .map_err(|error| QueueError::system(FileAction::Create, folder, None, error))?;
        let path = folder.join(CURSOR_NAME);
        let lock = storage
            .lock(&path)
            .map_err(|error| QueueError::system(FileAction::Lock, &path, None, error))?;
        let lock = lock.ok_or_else(|| QueueError::Locked {
            folder: folder.to_owned(),
        })?;
        let (cursor, state) = Cursor::open(lock, path)?;
        // Nothing is changed before all versions are known.
        let files = open_segments(&storage, folder)?;
        let mut queue = Self {
            storage,
            folder: folder.to_owned(),
            settings,
            folder_dirty: true,
            segments: VecDeque::new(),
            unremoved: Vec::new(),
            writer: None,
            reader: None,
            next: 0,
            front: cursor.written(),
            cursor,
            offset: SEGMENT_HEADER,
            located: None,
            returned: false,
            unsettled: None,
            recent: RecentRecords::default(),
            read_failures: 0,
            synced_end: 0,
            unreported: Vec::new(),
            last_append: None,
            totals: BacklogStatus::default(),
        };
        let mut recovery = Recovery {
            cursor_lost: state == CursorState::Lost,
            ..Recovery::default()
        };
        queue.load(files, &mut recovery);
        let status = queue.status();
        (recovery.records, recovery.samples) = (status.records, status.samples);
        recovery.dropped = queue.set_limits(settings, now);
        Ok((queue, recovery))
    }

    /// Takes over what the files hold.
    fn load(&mut self, files: Vec<SegmentFile<S::File>>, recovery: &mut Recovery) {
        // The last record says best which ones before it are acknowledged, if the cursor is lost.
        let mut scanned = Vec::new();
        for mut file in files.into_iter().rev() {
            let found = scan_segment(&mut file);
            for record in &found.records {
                self.front = self.front.max(record.header.acknowledged);
            }
            scanned.push((file, found));
        }
        self.next = self.front;
        // Everything before this number was seen, or is gone because it was acknowledged or
        // dropped.
        let mut expected = scanned.last().map_or(0, |(file, _)| file.first);
        let mut firsts: Vec<u64> = scanned.iter().map(|(file, _)| file.first).collect();
        while let Some((file, mut found)) = scanned.pop() {
            firsts.pop();
            let path = segment_path(&self.folder, file.first);
            recovery.corrupt_bytes += found.corrupt_bytes;
            if let Some((offset, error)) = &found.unreadable {
                recovery
                    .unreadable
                    .push(format!("{} at byte {offset}: {error}", path.display()));
            }
            let mut segment = Segment::new(file.first, file.salt);
            segment.length = found.end;
            segment.file_bytes = self.cut_tail(&file, &found, recovery);
            let unreadable = found.unreadable.is_some();
            if unreadable {
                // Reads are tried again when it is its turn. Its records may have any of these
                // numbers, which are therefore not used again.
                segment.length = file.bytes;
                let end = file.first + file.bytes / RECORD_HEADER;
                segment.end = end.min(firsts.last().copied().unwrap_or(u64::MAX));
            }
            found.records.retain(|record| record.header.number >= self.front);
            let mut lost = 0;
            for FoundRecord { offset, header } in &found.records {
                lost += header.number.saturating_sub(expected.max(self.front));
                expected = header.number + 1;
                if self.segments.is_empty() && segment.records == 0 && !unreadable {
                    self.offset = *offset;
                }
                segment.add(&header.head);
                segment.end = segment.end.max(header.number + 1);
            }
            self.count_dropped(Dropped {
                records: lost,
                samples: 0,
                bytes: found.corrupt_bytes,
                reason: DropReason::Corrupt,
            });
            if segment.records == 0 && !unreadable {
                let blocks = segment.blocks();
                self.remove_file(file.first, blocks);
                if !self.unremoved.is_empty() {
                    // The next segment needs another name.
                    self.next = self.next.max(file.first + 1);
                }
            } else {
                self.next = self.next.max(segment.end);
                self.segments.push_back(segment);
            }
        }
        self.synced_end = self.next;
        if self.segments.is_empty() {
            self.front = self.next;
        }
    }

    /// Cuts off what follows the last record; returns the bytes of the file afterwards.
    fn cut_tail(&self, file: &SegmentFile<S::File>, found: &ScannedSegment, recovery: &mut Recovery) -> u64 {
        // What cannot be read now may be readable later. An empty segment is removed as a whole.
        if found.end >= file.bytes || found.unreadable.is_some() {
            return file.bytes;
        }
        recovery.torn_bytes += file.bytes - found.end.min(file.bytes);
        if found.records.is_empty() {
            return file.bytes;
        }
        let path = segment_path(&self.folder, file.first);
        let cut = self
            .storage
            .open(&path, true)
            .and_then(|open| open.truncate(found.end));
        if cut.is_ok() { found.end } else { file.bytes }
    }
}

/// Opens all segment files of the folder, in the order of their records.
fn open_segments<S: QueueStorage>(
    storage: &S,
    folder: &Path,
) -> Result<Vec<SegmentFile<S::File>>, QueueError> {
    let names = storage
        .names(folder)
        .map_err(|error| QueueError::system(FileAction::List, folder, None, error))?;
    let mut firsts: Vec<u64> = names.iter().filter_map(|name| parse_name(name)).collect();
    firsts.sort_unstable();
    let mut files = Vec::new();
    for first in firsts {
        let path = segment_path(folder, first);
        let file = storage
            .open(&path, false)
            .map_err(|error| QueueError::system(FileAction::Open, &path, None, error))?;
        let bytes = file
            .length()
            .map_err(|error| QueueError::system(FileAction::Read, &path, None, error))?;
        let (salt, unreadable) = match read_salt(&file) {
            Ok(Ok(salt)) => (Some(salt), None),
            Ok(Err(BadPrefix::Version(found))) => {
                return Err(QueueError::Version {
                    file: path,
                    found,
                    known: FORMAT_VERSION,
                });
            }
            Ok(Err(BadPrefix::Damaged)) => (None, None),
            Err(error) => (None, Some(error)),
        };
        files.push(SegmentFile {
            first,
            file,
            bytes,
            salt,
            unreadable,
        });
    }
    Ok(files)
}

/// Finds all records of a segment.
fn scan_segment<F: QueueFile>(segment: &mut SegmentFile<F>) -> ScannedSegment {
    let mut scanned = ScannedSegment {
        records: Vec::new(),
        end: SEGMENT_HEADER,
        corrupt_bytes: 0,
        unreadable: segment.unreadable.take().map(|error| (0, error)),
    };
    let Some(salt) = segment.salt else {
        return scanned;
    };
    let scan = Scan {
        file: &segment.file,
        // This program writes no longer files, and a hostile one must not be read for hours.
        length: segment.bytes.min(2 * MAX_SEGMENT_BYTES),
        salt,
    };
    let mut next = segment.first;
    while scanned.end < scan.length {
        let found = match scan.record_at(scanned.end, next) {
            Ok(Some(found)) => Some(found),
            Ok(None) => search(&scan, scanned.end + 1, next, &mut scanned),
            Err(error) => {
                let offset = scanned.end;
                scanned.unreadable.get_or_insert((offset, error));
                search(&scan, offset + 1, next, &mut scanned)
            }
        };
        let Some(found) = found else { break };
        scanned.corrupt_bytes += found.offset - scanned.end;
        scanned.end = found.end();
        next = found.header.number + 1;
        scanned.records.push(found);
    }
    scanned
}

fn search<F: QueueFile>(
    scan: &Scan<'_, F>,
    from: u64,
    next: u64,
    scanned: &mut ScannedSegment,
) -> Option<FoundRecord> {
    let (found, unreadable) = scan.search(from, next);
    if let Some(unreadable) = unreadable {
        scanned.unreadable.get_or_insert(unreadable);
    }
    found
}
