//! Work on the queue of a stream that blocks: one piece at a time, on a thread for blocking calls.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use virtfleet_collector_core::mla::memory::{CountedMemory, MemoryShare};
use virtfleet_queue::{
    BacklogStatus, Dropped, MAX_BODY_BYTES, Queue, QueueError, QueueSettings, Record, RecordHead, RecordId,
};
use virtfleet_remote_write::Compression;

use super::requests::HeldRequest;

/// Maximum bytes of a stream's requests that wait in memory because the queue cannot be written.
/// The stream's share of the memory may be less.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// The queue of a stream, and what it could not take yet.
#[derive(Debug)]
pub(super) struct StreamDisk {
    folder: PathBuf,
    settings: QueueSettings,
    /// None until it could be opened.
    queue: Option<Queue>,
    waiting: Vec<WaitingRequest>,
    /// Counts the stream's requests in memory.
    memory: Arc<MemoryShare>,
}

#[derive(Debug)]
struct WaitingRequest {
    head: RecordHead,
    body: Vec<u8>,
    /// Counts its memory until it is dropped.
    _memory: CountedMemory,
}

#[derive(Debug, Default)]
pub(super) struct DiskWork {
    pub(super) append: Vec<HeldRequest>,
    /// The request that was delivered or refused.
    pub(super) acknowledge: Option<RecordId>,
    pub(super) sync: bool,
    pub(super) expire: bool,
    pub(super) settings: Option<QueueSettings>,
    /// Whether the oldest request is wanted.
    pub(super) front: bool,
}

#[derive(Debug, Default)]
pub(super) struct DiskResult {
    pub(super) front: Option<Record>,
    pub(super) dropped: Vec<Dropped>,
    /// Samples that were dropped because the queue could not be written.
    pub(super) unwritten: u64,
    pub(super) status: BacklogStatus,
    /// Why the queue cannot be used, in one sentence.
    pub(super) problem: Option<String>,
}

impl StreamDisk {
    pub(super) fn new(folder: PathBuf, settings: QueueSettings, memory: Arc<MemoryShare>) -> Self {
        Self {
            folder,
            settings: within(settings, &memory),
            queue: None,
            waiting: Vec::new(),
            memory,
        }
    }

    /// Works, and returns the disk for the next piece of work.
    pub(super) async fn run(mut self, work: DiskWork) -> anyhow::Result<(Self, DiskResult)> {
        let worked = tokio::task::spawn_blocking(move || {
            let result = self.work(work, SystemTime::now());
            (self, result)
        });
        Ok(worked.await?)
    }

    fn work(&mut self, work: DiskWork, now: SystemTime) -> DiskResult {
        let mut result = DiskResult::default();
        for HeldRequest { request, memory } in work.append {
            self.waiting.push(WaitingRequest {
                head: RecordHead {
                    samples: request.samples,
                    oldest_ms: request.oldest_ms,
                    newest_ms: request.newest_ms,
                    kind: Compression::Snappy.code(),
                },
                body: request.body,
                _memory: memory,
            });
        }
        if let Some(settings) = work.settings {
            let settings = within(settings, &self.memory);
            self.settings = settings;
            if let Some(queue) = &mut self.queue {
                result.dropped.extend(queue.set_limits(settings, now));
            }
        }
        if let Err(error) = self.use_queue(work.acknowledge, work.sync, now, &mut result) {
            result.problem = Some(error.to_string());
        }
        if let Some(queue) = &mut self.queue {
            if work.expire {
                result.dropped.extend(queue.expire(now));
            }
            if work.front {
                match queue.front() {
                    Ok(front) => result.front = front,
                    Err(error) => result.problem = Some(error.to_string()),
                }
                result.dropped.extend(queue.report());
            }
            result.status = queue.status();
        }
        result.unwritten += self.drop_waiting();
        result
    }

    fn use_queue(
        &mut self,
        acknowledge: Option<RecordId>,
        sync: bool,
        now: SystemTime,
        result: &mut DiskResult,
    ) -> Result<(), QueueError> {
        if self.queue.is_none() {
            let (queue, recovery) = Queue::open(&self.folder, self.settings, now)?;
            if recovery.records > 0 || recovery.torn_bytes > 0 || !recovery.unreadable.is_empty() {
                tracing::info!(folder = %self.folder.display(), ?recovery, "read the queue of a stream");
            }
            result.dropped.extend(recovery.dropped);
            self.queue = Some(queue);
        }
        let Some(queue) = &mut self.queue else {
            return Ok(());
        };
        if let Some(id) = acknowledge {
            queue.acknowledge(id)?;
        }
        let mut appended = 0;
        let outcome = self.waiting.iter().try_for_each(|request| {
            match queue.append(request.head, &request.body, now) {
                Ok(dropped) => result.dropped.extend(dropped),
                // It will never fit.
                Err(error @ QueueError::TooLarge { .. }) => {
                    result.unwritten += u64::from(request.head.samples);
                    result.problem = Some(error.to_string());
                }
                Err(error) => return Err(error),
            }
            appended += 1;
            Ok(())
        });
        self.waiting.drain(..appended);
        outcome?;
        if sync {
            queue.sync()?;
        }
        Ok(())
    }

    /// Drops the oldest requests that memory has no room for; returns their samples.
    fn drop_waiting(&mut self) -> u64 {
        let mut bytes: usize = self.waiting.iter().map(|request| request.body.len()).sum();
        let mut dropped = 0;
        while !self.waiting.is_empty() && (bytes > MAX_WAITING_BYTES || self.memory.is_over()) {
            let request = self.waiting.remove(0);
            bytes -= request.body.len();
            dropped += u64::from(request.head.samples);
        }
        dropped
    }

    /// Whether requests wait in memory.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Removes the queue with everything in it.
    pub(super) async fn remove(self) -> anyhow::Result<()> {
        let removed = tokio::task::spawn_blocking(move || {
            drop(self.queue);
            std::fs::remove_dir_all(&self.folder)
        });
        Ok(removed.await??)
    }
}

/// The settings with a bound on what the queue itself keeps in memory: all queues together keep at
/// most an eighth of the memory for requests.
fn within(settings: QueueSettings, memory: &MemoryShare) -> QueueSettings {
    QueueSettings {
        recent_bytes: settings.recent_bytes.min(memory.part() / 4),
        ..settings
    }
}

/// Limits of a queue whose share of the space is `share` bytes.
pub(super) fn queue_settings(queue_bytes: u64, share: u64, age: Duration) -> QueueSettings {
    let bytes = queue_bytes.min(share).max(u64::from(MAX_BODY_BYTES.min(1 << 20)));
    QueueSettings::new(bytes, age)
}

#[cfg(test)]
mod tests {
    use virtfleet_collector_core::mla::memory::MemoryPool;
    use virtfleet_remote_write::request::FinishedRequest;

    use super::*;

    fn memory() -> Arc<MemoryShare> {
        Arc::new(MemoryPool::new(usize::MAX).share())
    }

    fn request(samples: u32, bytes: usize) -> FinishedRequest {
        FinishedRequest {
            body: vec![1; bytes],
            message_bytes: bytes,
            samples,
            oldest_ms: 1,
            newest_ms: 2,
        }
    }

    fn held(disk: &StreamDisk, request: FinishedRequest) -> HeldRequest {
        let memory = disk.memory.count(request.body.len());
        HeldRequest { request, memory }
    }

    fn append(disk: &mut StreamDisk, request: FinishedRequest) -> DiskResult {
        let work = DiskWork {
            append: vec![held(disk, request)],
            front: true,
            ..DiskWork::default()
        };
        disk.work(work, SystemTime::now())
    }

    #[test]
    fn requests_wait_in_memory_until_the_queue_can_be_written() {
        /// Memory has room for four requests of this size.
        const LARGE: usize = (4 << 20) - 4096;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue");
        std::fs::write(&path, "a file in its place").unwrap();
        let settings = queue_settings(64 << 20, u64::MAX, Duration::from_hours(1));
        let mut disk = StreamDisk::new(path.clone(), settings, memory());
        let result = append(&mut disk, request(3, 1 << 20));
        assert!(result.problem.is_some() && result.front.is_none() && disk.has_waiting());
        for _ in 0..3 {
            assert_eq!(append(&mut disk, request(5, LARGE)).unwritten, 0);
        }
        // The oldest is dropped, and counted.
        assert_eq!(append(&mut disk, request(7, LARGE)).unwritten, 3);
        std::fs::remove_file(&path).unwrap();
        let result = append(&mut disk, request(9, 10));
        assert_eq!((result.problem, result.unwritten), (None, 0));
        assert!(!disk.has_waiting());
        let first = result.front.unwrap();
        assert_eq!(
            (first.head.samples, result.status.samples),
            (5, 5 + 5 + 5 + 7 + 9)
        );
        let work = DiskWork {
            acknowledge: Some(first.id),
            sync: true,
            ..DiskWork::default()
        };
        let status = disk.work(work, SystemTime::now()).status;
        assert_eq!((status.samples, status.unsynced_samples), (26, 0));
        assert_eq!(status.accepted_samples, 31);
    }

    #[test]
    fn a_full_disk_does_not_let_one_stream_use_the_memory_of_another() {
        const MIB: usize = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "no folder can be made here").unwrap();
        let pool = MemoryPool::new(8 * MIB);
        let settings = queue_settings(64 << 20, u64::MAX, Duration::from_hours(1));
        let disk = |name: &str| StreamDisk::new(path.join(name), settings, Arc::new(pool.share()));
        let (mut greedy, mut other) = (disk("greedy"), disk("other"));
        for _ in 0..4 {
            assert_eq!(append(&mut greedy, request(3, MIB)).unwritten, 0);
        }
        // Half of the memory is used, and the greedy stream has more than its part.
        assert_eq!(append(&mut greedy, request(3, MIB)).unwritten, 3);
        for _ in 0..2 {
            assert_eq!(append(&mut other, request(5, MIB)).unwritten, 0);
        }
        assert_eq!(append(&mut other, request(5, MIB)).unwritten, 5);
        assert_eq!(append(&mut greedy, request(3, MIB)).unwritten, 9);
        assert_eq!(pool.used(), 4 * MIB);
        // What the queues keep by themselves is bounded, too.
        assert_eq!(other.settings.recent_bytes, settings.recent_bytes);
        let _many: Vec<_> = (0..30).map(|_| pool.share()).collect();
        assert!(disk("third").settings.recent_bytes < settings.recent_bytes);
    }

    #[test]
    fn a_request_that_was_dropped_while_it_was_sent_is_counted_with_the_next_one() {
        const BYTES: usize = 300 << 10;
        let folder = tempfile::tempdir().unwrap();
        let settings = queue_settings(1 << 20, u64::MAX, Duration::from_hours(1));
        let mut disk = StreamDisk::new(folder.path().join("queue"), settings, memory());
        let mut dropped = 0;
        let mut count = |result: &DiskResult| {
            dropped += result.dropped.iter().map(|dropped| dropped.samples).sum::<u64>();
        };
        assert!(append(&mut disk, request(3, BYTES)).front.is_some());
        for _ in 0..8 {
            let work = DiskWork {
                append: vec![held(&disk, request(5, BYTES))],
                ..DiskWork::default()
            };
            count(&disk.work(work, SystemTime::now()));
        }
        let work = DiskWork {
            front: true,
            ..DiskWork::default()
        };
        let result = disk.work(work, SystemTime::now());
        count(&result);
        assert_eq!(dropped + result.status.samples, 3 + 8 * 5);
    }
}
