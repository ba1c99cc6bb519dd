//! Queues and sends the requests of one stream.
//!
//! ```text
//! Stream ─ finished requests ─▶ queue on disk ─ oldest ─▶ sender ─▶ receiver
//!                                    ▲ acknowledge, when delivered or refused ◀┘
//! ```
//! A stream sends one request at a time, in order. A receiver that does not answer costs other
//! streams nothing: each has its own worker, and no lock is held while it waits. What it holds in
//! memory is within its share.

use std::{
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{
    sync::watch,
    time::{Interval, MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::mla::memory::CountedMemory;
use virtfleet_queue::{BacklogStatus, Record, RecordId};
use virtfleet_remote_write::Compression;

use super::{
    disk::{DiskResult, DiskWork, StreamDisk, queue_settings},
    progress::StreamProgress,
    send::{Backoff, SendOutcome, SendResult, Sender},
    settings::{StreamName, StreamSettings},
    status::MlaStatus,
    stream::Stream,
};
use crate::{
    clock::unix_ms,
    config::{MlaBatchSettings, MlaFlushSettings},
    dial_guard::DialGuard,
};

/// Interval at which records over the maximum age are dropped.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(5);
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// A stream without settings sends what is queued for so long. Then its queue is removed.
pub(super) const REMOVAL_GRACE: Duration = Duration::from_mins(10);
/// Time for which a stream still sends at shutdown: another process may have no access to the
/// queue.
const SHUTDOWN_SEND_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time for the last write of a queue at shutdown.
const SHUTDOWN_WRITE_TIMEOUT: Duration = Duration::from_secs(3);
/// Age of the oldest queued sample, beside the time for which samples wait for a full request, from
/// which a stream counts as catching up.
const BEHIND_AFTER: Duration = Duration::from_secs(15);

#[derive(Debug, Clone)]
pub(super) struct WorkerSettings {
    /// None: the stream was removed.
    pub(super) stream: Option<Arc<StreamSettings>>,
    /// Maximum size of the queue because of the other queues, in bytes.
    pub(super) share: u64,
    /// What all streams have in common.
    pub(super) common: Arc<CommonSettings>,
}

/// Settings of all streams.
#[derive(Debug)]
pub(super) struct CommonSettings {
    pub(super) flush: MlaFlushSettings,
    pub(super) batch: MlaBatchSettings,
    /// Checks the addresses of receivers that tenants name.
    pub(super) guard: Arc<DialGuard>,
}

pub(super) struct WorkerParts {
    pub(super) name: StreamName,
    pub(super) stream: Arc<Stream>,
    pub(super) settings: watch::Receiver<WorkerSettings>,
    pub(super) status: Arc<MlaStatus>,
    pub(super) stop: CancellationToken,
}

type Sending = Pin<Box<dyn Future<Output = (RecordId, u32, SendOutcome)> + Send>>;

struct Worker {
    parts: WorkerParts,
    /// The present or the last settings.
    settings: Arc<StreamSettings>,
    share: u64,
    common: Arc<CommonSettings>,
    sender: Option<Arc<Sender>>,
    sending: Option<Sending>,
    backoff: Backoff,
    refused: bool,
    progress: StreamProgress,
    backlog: BacklogStatus,
    acknowledge: Option<RecordId>,
    started: Instant,
    /// When the stream was removed.
    removed: Option<Instant>,
    synced: Instant,
    expired: Instant,
    published: Option<Instant>,
    /// The queue was not read yet.
    is_new: bool,
}

/// Queues and sends until `stop`, or until the stream has been removed.
///
/// # Errors
/// A thread for blocking calls panicked.
pub(super) async fn run(
    parts: WorkerParts,
    settings: Arc<StreamSettings>,
    mut disk: StreamDisk,
) -> anyhow::Result<StreamName> {
    let (stop, stream) = (parts.stop.clone(), Arc::clone(&parts.stream));
    let mut worker = Worker::new(parts, settings);
    let mut ticks = flush_ticks(&worker.common.flush);
    loop {
        let mut new_settings = None;
        tokio::select! {
            () = stop.cancelled() => break,
            changed = worker.parts.settings.changed() => match changed {
                Ok(()) => new_settings = Some(worker.parts.settings.borrow_and_update().clone()),
                Err(_) => break,
            },
            () = stream.changed.notified() => {}
            (id, samples, outcome) = answer(&mut worker.sending) => worker.answered(id, samples, &outcome),
            _ = ticks.tick() => {}
        }
        let mut work = DiskWork::default();
        if let Some(settings) = new_settings {
            worker.configure(settings);
            ticks = flush_ticks(&worker.common.flush);
            work.settings = Some(worker.queue_settings());
        }
        worker.plan(&mut work, disk.has_waiting());
        if worker.is_due(&work) {
            let result;
            (disk, result) = disk.run(work).await?;
            worker.worked(result);
        }
        worker.publish();
        if worker.is_removed() {
            let name = worker.parts.name.clone();
            if let Err(error) = disk.remove().await {
                tracing::warn!(stream = %name, %error, "cannot remove the queue of a stream that was removed");
            }
            return Ok(name);
        }
    }
    worker.drain(disk).await?;
    worker.published = None;
    worker.publish();
    Ok(worker.parts.name)
}

/// When samples that wait may have to be flushed or synced.
fn flush_ticks(flush: &MlaFlushSettings) -> Interval {
    let shortest = flush.interval.0.min(flush.sync.0);
    let period = (shortest / 4).clamp(Duration::from_millis(50), Duration::from_secs(1));
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// The answer to the running request; pending without one.
async fn answer(sending: &mut Option<Sending>) -> (RecordId, u32, SendOutcome) {
    let answered = match sending {
        Some(request) => request.as_mut().await,
        None => std::future::pending().await,
    };
    *sending = None;
    answered
}

impl Worker {
    fn new(parts: WorkerParts, settings: Arc<StreamSettings>) -> Self {
        let now = Instant::now();
        let WorkerSettings { share, common, .. } = parts.settings.borrow().clone();
        let mut worker = Self {
            progress: StreamProgress::new(&parts.name),
            parts,
            share,
            common,
            sender: None,
            sending: None,
            backoff: Backoff::new(),
            refused: false,
            backlog: BacklogStatus::default(),
            acknowledge: None,
            started: now,
            removed: None,
            synced: now,
            expired: now,
            published: None,
            is_new: true,
            settings,
        };
        worker.connect();
        worker
    }

    fn configure(&mut self, new: WorkerSettings) {
        self.share = new.share;
        // The same endpoint keeps the connection, and what the receiver has said about retries.
        let mut is_connected = Arc::ptr_eq(&new.common, &self.common);
        if !is_connected {
            self.common = new.common;
            self.parts.stream.set_batch(&self.common.batch);
        }
        match new.stream {
            Some(settings) => {
                self.removed = None;
                if !Arc::ptr_eq(&settings, &self.settings) {
                    is_connected &= settings.has_endpoint_of(&self.settings);
                    self.settings = settings;
                    self.parts.stream.configure(&self.settings);
                    if self.settings.suspend || !self.settings.guests {
                        // What is still written begins again with its next page.
                        self.parts.stream.end_all(now_ms());
                    }
                }
            }
            None if self.removed.is_none() => {
                self.removed = Some(Instant::now());
                self.parts.stream.end_all(now_ms());
            }
            None => {}
        }
        if !is_connected {
            self.backoff.retry_at_once();
            self.connect();
        }
    }

    /// Makes the sender for the present endpoint. A running request ends with the old one.
    fn connect(&mut self) {
        let endpoint = self.settings.endpoint.clone();
        // The operator may send anywhere.
        let is_tenant = self.parts.name.cluster().is_some();
        let guard = is_tenant.then(|| Arc::clone(&self.common.guard));
        let made = endpoint.map(|endpoint| Sender::guarded(endpoint, guard));
        self.sender = match made {
            Some(Ok(sender)) => Some(Arc::new(sender)),
            Some(Err(error)) => {
                tracing::error!(stream = %self.parts.name, %error, "the endpoint cannot be used");
                None
            }
            None => None,
        };
    }

    fn queue_settings(&self) -> virtfleet_queue::QueueSettings {
        let limits = &self.settings.limits;
        queue_settings(limits.queue_bytes, self.share, limits.queue_age)
    }

    /// Adds what is due.
    fn plan(&mut self, work: &mut DiskWork, has_waiting: bool) {
        let now = Instant::now();
        let before = if self.removed.is_some() {
            Some(now)
        } else {
            now.checked_sub(self.common.flush.interval.0)
        };
        work.append = self.parts.stream.take(before);
        work.acknowledge = self.acknowledge.take();
        work.sync = now.duration_since(self.synced) >= self.common.flush.sync.0;
        if work.sync {
            self.synced = now;
            work.sync = self.backlog.unsynced_records > 0;
        }
        work.expire = now.duration_since(self.expired) >= EXPIRE_INTERVAL;
        if work.expire {
            self.expired = now;
        }
        let is_filled = self.is_new || self.backlog.records > 0 || !work.append.is_empty() || has_waiting;
        work.front = self.may_send() && is_filled;
    }

    /// Whether the next request may be sent now.
    fn may_send(&self) -> bool {
        self.sending.is_none()
            && self.sender.is_some()
            && !self.settings.suspend
            // A gateway may refuse such a certificate with 400, which would lose the request.
            && !self.settings.is_certificate_expired(unix_ms() / 1000)
            && self.backoff.wait(self.started.elapsed()).is_zero()
    }

    fn is_due(&self, work: &DiskWork) -> bool {
        self.is_new
            || !work.append.is_empty()
            || work.acknowledge.is_some()
            || work.sync
            || work.expire
            || work.front
            || work.settings.is_some()
    }

    /// Sends what is left while the receiver accepts it, and writes the rest to the disk: the next
    /// process with this queue sends it.
    ///
    /// # Errors
    /// A thread for blocking calls panicked.
    async fn drain(&mut self, disk: StreamDisk) -> anyhow::Result<()> {
        let deadline = Instant::now() + SHUTDOWN_SEND_TIMEOUT;
        let (mut disk, mut is_synced) = (disk, false);
        loop {
            let mut work = DiskWork::default();
            self.plan(&mut work, disk.has_waiting());
            // Also what a pull that was running has written meanwhile.
            work.append.extend(self.parts.stream.take(Some(Instant::now())));
            work.front |= !work.append.is_empty() && self.may_send();
            // The queue is safe before an answer is waited for.
            work.sync = !is_synced || !work.append.is_empty();
            is_synced = true;
            let Ok(done) = timeout(SHUTDOWN_WRITE_TIMEOUT, disk.run(work)).await else {
                tracing::error!(stream = %self.parts.name, "the queue could not be written in time at shutdown");
                return Ok(());
            };
            let result;
            (disk, result) = done?;
            self.worked(result);
            if self.sending.is_none() {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if let Ok((id, samples, outcome)) = timeout(left, answer(&mut self.sending)).await {
                self.answered(id, samples, &outcome);
            } else {
                // It may have been delivered; the next process sends it again.
                self.sending = None;
                self.sender = None;
            }
        }
    }

    fn worked(&mut self, result: DiskResult) {
        self.is_new = false;
        self.progress.worked(&result);
        self.backlog = result.status;
        if let (Some(record), Some(sender)) = (result.front, &self.sender) {
            // In another form, it is there a second time.
            let memory = self.parts.stream.memory.count(2 * record.body.len());
            self.sending = Some(request(Arc::clone(sender), record, memory));
        }
    }

    fn answered(&mut self, id: RecordId, samples: u32, outcome: &SendOutcome) {
        self.progress.sent(outcome, samples);
        self.refused = matches!(outcome.result, SendResult::Refused { .. });
        match outcome.result {
            SendResult::Delivered { .. } | SendResult::Refused { .. } => {
                self.acknowledge = Some(id);
                self.backoff.answered();
            }
            SendResult::Retry { after, .. } => {
                self.backoff
                    .failed(self.started.elapsed(), after, fastrand::f64());
            }
        }
    }

    fn publish(&mut self) {
        let now = Instant::now();
        if self
            .published
            .is_some_and(|last| now.duration_since(last) < PUBLISH_INTERVAL)
        {
            return;
        }
        self.published = Some(now);
        let at = unix_ms();
        let behind = BEHIND_AFTER + self.common.flush.interval.0;
        let oldest = self
            .backlog
            .oldest_ms
            .and_then(|oldest| u64::try_from(oldest).ok());
        let is_behind =
            oldest.is_some_and(|oldest| u128::from(at.saturating_sub(oldest)) > behind.as_millis());
        let limit = self.queue_settings().max_bytes;
        let counts = self.parts.stream.counts();
        let view = self.progress.view(
            &self.settings,
            (&self.backlog, limit),
            counts,
            self.refused,
            self.backoff.failures(),
            is_behind,
        );
        self.parts.status.publish_queue(view, at);
    }

    /// Whether the stream was removed, and its queue is no longer needed.
    fn is_removed(&self) -> bool {
        self.removed.is_some_and(|since| {
            let is_sent = self.backlog.records == 0 && self.sending.is_none() && self.acknowledge.is_none();
            is_sent || self.sender.is_none() || since.elapsed() >= REMOVAL_GRACE
        })
    }
}

fn now_ms() -> i64 {
    i64::try_from(unix_ms()).unwrap_or(i64::MAX)
}

fn request(sender: Arc<Sender>, record: Record, memory: CountedMemory) -> Sending {
    let compression = Compression::from_code(record.head.kind).unwrap_or(Compression::Snappy);
    let (id, samples) = (record.id, record.head.samples);
    let body = Bytes::from(record.body);
    Box::pin(async move {
        let outcome = sender.send(&body, compression, samples).await;
        drop(memory);
        (id, samples, outcome)
    })
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
