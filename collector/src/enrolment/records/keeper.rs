//! The one task that changes records: it applies changes in memory, writes them in batches, and
//! undoes those that could not be written.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::enrolment::{EnrolmentRecord, RecordConflict, read_shard};
use virtfleet_wire::ids::VmKey;

use super::{
    BookRequest, RecordBook, RecordError, SharedRecords,
    store::{RecordStore, RecordWriteError, StoredShard},
};
use crate::{enrolment::metrics::EnrolmentMetrics, leader::WriteAccess};

/// Time in which changes are collected before they are written.
const COLLECT_WINDOW: Duration = Duration::from_millis(20);
/// Changes without reply are written at least so often.
pub(super) const LAZY_WRITE_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum concurrent writes: more would only write smaller batches.
const MAX_CONCURRENT_WRITES: usize = 4;
/// Maximum requests taken from the queue at once.
const MAX_BATCH: usize = 256;
/// Interval between two attempts of the leader to read all records.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between two reads of a process that does not lead.
const STANDBY_READ_INTERVAL: Duration = Duration::from_secs(30);
/// A shard that was read or written so recently is not read again.
const FRESH: Duration = Duration::from_secs(10);
/// A write that may take so long is started only while this process leads for longer.
const WRITE_MARGIN: Duration = Duration::from_secs(2);

/// Why a process that does not lead records nothing.
const STANDBY: &str = "this collector does not lead";

#[derive(Debug)]
struct ShardState<V> {
    /// Version in the store; none if it has none.
    version: Option<V>,
    /// When it was last read or written.
    fresh: Option<Instant>,
    /// Changes that are in memory and not in the store, in order.
    applied: Vec<AppliedChange>,
    /// So many of them are being written.
    in_flight: usize,
    /// Whether a task waits for a change that is not being written.
    urgent: bool,
    /// Grows when the shard is read: the end of a write that began earlier is not used.
    generation: u64,
}

impl<V> Default for ShardState<V> {
    fn default() -> Self {
        Self {
            version: None,
            fresh: None,
            applied: Vec::new(),
            in_flight: 0,
            urgent: false,
            generation: 0,
        }
    }
}

#[derive(Debug)]
struct AppliedChange {
    vm: VmKey,
    before: Option<EnrolmentRecord>,
    reply: Option<oneshot::Sender<Result<(), RecordError>>>,
}

struct WriteEnd<V> {
    shard: usize,
    generation: u64,
    result: Result<V, RecordWriteError>,
}

/// Keeps the records of a [`RecordBook`].
pub struct RecordKeeper<S: RecordStore> {
    store: Arc<S>,
    shared: Arc<SharedRecords>,
    requests: mpsc::Receiver<BookRequest>,
    write_access: WriteAccess,
    metrics: EnrolmentMetrics,
    shards: Vec<ShardState<S::Version>>,
    writes: JoinSet<WriteEnd<S::Version>>,
    /// When collected changes are written.
    next_write: Option<Instant>,
}

/// Keeps the records until `stop`.
pub async fn keep_records<S: RecordStore>(mut keeper: RecordKeeper<S>, stop: CancellationToken) {
    let mut leadership = keeper.write_access.changes();
    let mut next_flush = now() + LAZY_WRITE_INTERVAL;
    let mut next_read = now();
    let mut led = None;
    let mut batch = Vec::new();
    loop {
        let leads = keeper.write_access.leads();
        if led != Some(leads) {
            led = Some(leads);
            next_read = now();
            keeper.shared.set_current(Err(STANDBY.to_owned()));
        }
        if now() >= next_read && !keeper.is_current() {
            keeper.read_all(leads).await;
            let pause = if leads {
                RETRY_INTERVAL
            } else {
                STANDBY_READ_INTERVAL
            };
            next_read = now() + pause;
        }
        let changed = async {
            // Without election nothing ever changes.
            if leadership.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let (write, is_current) = (keeper.next_write, keeper.is_current());
        tokio::select! {
            () = stop.cancelled() => return,
            () = changed => {}
            count = keeper.requests.recv_many(&mut batch, MAX_BATCH) => {
                if count == 0 {
                    return;
                }
                for request in batch.drain(..) {
                    keeper.answer(request).await;
                }
            }
            Some(ended) = keeper.writes.join_next() => keeper.written(ended).await,
            () = sleep_until(write), if write.is_some() => keeper.start_writes(),
            () = sleep_until(Some(next_flush)) => {
                next_flush = now() + LAZY_WRITE_INTERVAL;
                keeper.flush();
            }
            () = sleep_until(Some(next_read)), if !is_current => {}
        }
    }
}

/// Time of tokio's clock, which tests can pause.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

async fn sleep_until(at: Option<Instant>) {
    tokio::time::sleep_until(at.unwrap_or_else(now).into()).await;
}

impl<S: RecordStore> RecordKeeper<S> {
    /// A keeper for the records in `store`, and the book for everyone else.
    pub fn new(store: S, write_access: WriteAccess, metrics: EnrolmentMetrics) -> (RecordBook, Self) {
        let (book, requests) = RecordBook::new(store.shards());
        let shards = (0..store.shards()).map(|_| ShardState::default()).collect();
        let keeper = Self {
            store: Arc::new(store),
            shared: Arc::clone(&book.shared),
            requests,
            write_access,
            metrics,
            shards,
            writes: JoinSet::new(),
            next_write: None,
        };
        (book, keeper)
    }

    fn is_current(&self) -> bool {
        let current = self.shared.current.read();
        current.unwrap_or_else(PoisonError::into_inner).is_ok()
    }

    /// Reads all shards. Only a process that leads may record afterwards.
    async fn read_all(&mut self, leads: bool) {
        let read = self.store.read(None).await;
        let taken = read.and_then(|shards| shards.into_iter().try_for_each(|shard| self.take(shard)));
        match taken {
            Ok(()) if leads => self.shared.set_current(Ok(())),
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(
                    error,
                    "the records of enrolment cannot be read; no agent is enrolled until they can"
                );
                self.shared.set_current(Err(error));
            }
        }
        self.count();
    }

    /// Takes over a shard as the store has it. Changes that are not in the store fail.
    fn take(&mut self, read: StoredShard<S::Version>) -> Result<(), String> {
        let Some(state) = self.shards.get_mut(read.shard) else {
            return Ok(());
        };
        let (records, version) = match read.stored {
            None => (BTreeMap::new(), None),
            Some((json, version)) => {
                let records = read_shard(&json)
                    .map_err(|error| format!("the stored records of shard {}: {error}", read.shard))?;
                (records, Some(version))
            }
        };
        (state.version, state.fresh) = (version, Some(now()));
        let lost = std::mem::take(&mut state.applied);
        (state.in_flight, state.urgent) = (0, false);
        state.generation += 1;
        self.shared
            .change(|known| known.replace_shard(read.shard, records));
        reply(lost, &Err(RecordError::Conflict(RecordConflict::Changed)));
        Ok(())
    }

    async fn answer(&mut self, request: BookRequest) {
        match request {
            BookRequest::Put {
                vm,
                expected,
                new,
                reply,
            } => self.apply(vm, expected, new, reply),
            BookRequest::Refresh { vm, reply } => {
                let shard = self.shared.read().shard(&vm);
                let refreshed = self.refresh(shard).await;
                // The task that asked may be gone.
                drop(reply.send(refreshed.map_err(RecordError::Failed)));
            }
        }
    }

    async fn refresh(&mut self, shard: usize) -> Result<(), String> {
        let state = &self.shards[shard];
        let is_fresh = state
            .fresh
            .is_some_and(|at| now().saturating_duration_since(at) < FRESH);
        if is_fresh || !state.applied.is_empty() {
            return Ok(());
        }
        let read = self.store.read(Some(shard)).await?;
        read.into_iter().try_for_each(|shard| self.take(shard))
    }

    fn apply(
        &mut self,
        vm: VmKey,
        expected: Option<EnrolmentRecord>,
        new: Option<EnrolmentRecord>,
        reply: Option<oneshot::Sender<Result<(), RecordError>>>,
    ) {
        let current = self.shared.current.read();
        let current = current
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .map_err(RecordError::Failed);
        let applied = current.and_then(|()| {
            self.shared.change(|records| {
                let changed = match new {
                    Some(new) => records.put(&vm, expected.as_ref(), new),
                    None if records.get(&vm) != expected.as_ref() => Err(RecordConflict::Changed),
                    None => {
                        records.set(&vm, None);
                        Ok(())
                    }
                };
                changed
                    .map(|()| records.shard(&vm))
                    .map_err(RecordError::Conflict)
            })
        });
        let shard = match (applied, reply) {
            (Ok(shard), reply) => {
                let state = &mut self.shards[shard];
                state.urgent |= reply.is_some();
                state.applied.push(AppliedChange {
                    vm,
                    before: expected,
                    reply,
                });
                shard
            }
            (Err(error), reply) => {
                if let Some(reply) = reply {
                    drop(reply.send(Err(error)));
                }
                return;
            }
        };
        self.count();
        if self.shards[shard].urgent && self.next_write.is_none() {
            self.next_write = Some(now() + COLLECT_WINDOW);
        }
    }

    /// Also writes changes whose result no caller awaits.
    fn flush(&mut self) {
        for state in &mut self.shards {
            state.urgent |= state.applied.len() > state.in_flight;
        }
        self.start_writes();
    }

    fn start_writes(&mut self) {
        self.next_write = None;
        for shard in 0..self.shards.len() {
            let state = &mut self.shards[shard];
            if !state.urgent || state.in_flight > 0 {
                continue;
            }
            if self.writes.len() >= MAX_CONCURRENT_WRITES {
                return;
            }
            state.urgent = false;
            state.in_flight = state.applied.len();
            let json = self.shared.read().shard_json(shard);
            let (store, version, generation) =
                (Arc::clone(&self.store), state.version.clone(), state.generation);
            let write_access = self.write_access.clone();
            self.writes.spawn(async move {
                let write = async {
                    let json = json.map_err(RecordWriteError::Failed)?;
                    store.write(shard, json, version.as_ref()).await
                };
                let written = write_access.within(WRITE_MARGIN, write).await;
                WriteEnd {
                    shard,
                    generation,
                    result: written.unwrap_or_else(|| Err(RecordWriteError::Failed(STANDBY.to_owned()))),
                }
            });
        }
    }

    async fn written(&mut self, ended: Result<WriteEnd<S::Version>, JoinError>) {
        match ended {
            Ok(end) => self.write_ended(end).await,
            Err(error) => {
                // A bug; which shard is unknown, so everything is read again.
                tracing::error!(%error, "writing records of enrolment panicked");
                for shard in 0..self.shards.len() {
                    self.undo(shard, "writing panicked");
                }
                self.shared.set_current(Err("writing panicked".to_owned()));
            }
        }
        self.count();
        if self.shards.iter().any(|state| state.urgent) {
            self.start_writes();
        }
    }

    async fn write_ended(&mut self, end: WriteEnd<S::Version>) {
        let state = &mut self.shards[end.shard];
        match end.result {
            Ok(version) if end.generation == state.generation => {
                (state.version, state.fresh) = (Some(version), Some(now()));
                let done: Vec<_> = state.applied.drain(..state.in_flight).collect();
                state.in_flight = 0;
                reply(done, &Ok(()));
            }
            Ok(_) | Err(RecordWriteError::Conflict) => {
                let read = self.store.read(Some(end.shard)).await;
                let taken = read.and_then(|read| read.into_iter().try_for_each(|shard| self.take(shard)));
                if let Err(error) = taken {
                    self.undo(end.shard, &error);
                    self.shared.set_current(Err(error));
                }
            }
            Err(RecordWriteError::Failed(error)) => {
                tracing::warn!(error, "records of enrolment could not be written");
                if end.generation == state.generation {
                    self.undo(end.shard, &error);
                }
            }
        }
    }

    /// Undoes all changes that are not in the store.
    fn undo(&mut self, shard: usize, error: &str) {
        let state = &mut self.shards[shard];
        let lost = std::mem::take(&mut state.applied);
        (state.in_flight, state.urgent) = (0, false);
        self.shared.change(|records| {
            for change in lost.iter().rev() {
                records.set(&change.vm, change.before.clone());
            }
        });
        reply(lost, &Err(RecordError::Failed(error.to_owned())));
    }

    fn count(&self) {
        self.metrics.set_enrolled(self.shared.read().enrolled());
    }
}

fn reply(changes: Vec<AppliedChange>, result: &Result<(), RecordError>) {
    for reply in changes.into_iter().filter_map(|change| change.reply) {
        // The task that asked may be gone.
        drop(reply.send(result.clone()));
    }
}
