//! All streams: starts and stops their workers as the settings change.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use tokio::{
    sync::watch,
    task::{self, JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::mla::{FamilyTable, memory::MemoryPool};
use virtfleet_wire::ids::ClusterName;

use super::{
    disk::{StreamDisk, queue_settings},
    requests::MAX_REQUEST_MEMORY,
    settings::{AllStreamSettings, StreamName, StreamSettings},
    status::MlaStatus,
    stream::Stream,
    worker::{self, CommonSettings, WorkerParts, WorkerSettings},
};
use crate::{
    config::MlaSettings,
    dial_guard::{DialGuard, InfraApiServer},
};

/// Folder of the queue of the operator's stream.
const FLEET_FOLDER: &str = "fleet";
/// Prefix of the folder of a user cluster's queue.
const CLUSTER_PREFIX: &str = "cluster-";

/// The streams that take samples. Share it as `Arc<Streams>`.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) table: Arc<FamilyTable>,
    /// Memory of all requests.
    requests: Arc<MemoryPool>,
    by_name: RwLock<BTreeMap<StreamName, Arc<Stream>>>,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            table: Arc::default(),
            requests: MemoryPool::new(MAX_REQUEST_MEMORY),
            by_name: RwLock::default(),
        }
    }
}

impl Streams {
    pub(super) fn tenant(&self, cluster: Option<&ClusterName>) -> Option<(StreamName, Arc<Stream>)> {
        let name = StreamName::Tenant(cluster?.clone());
        let stream = self.get(&name)?;
        Some((name, stream))
    }

    pub(super) fn get(&self, name: &StreamName) -> Option<Arc<Stream>> {
        let streams = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        streams.get(name).cloned()
    }

    pub(super) fn all(&self) -> Vec<(StreamName, Arc<Stream>)> {
        let streams = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        let all = streams.iter();
        all.map(|(name, stream)| (name.clone(), Arc::clone(stream)))
            .collect()
    }

    /// Whether there are none, e.g. because MLA is off.
    pub(super) fn is_empty(&self) -> bool {
        let streams = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        streams.is_empty()
    }

    fn insert(&self, name: StreamName, stream: Arc<Stream>) {
        let mut streams = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        streams.insert(name, stream);
    }

    fn remove(&self, name: &StreamName) {
        let mut streams = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        streams.remove(name);
    }
}

/// Runs the workers of all streams.
pub(super) struct StreamRunner {
    streams: Arc<Streams>,
    mla: MlaSettings,
    common: Arc<CommonSettings>,
    status: Arc<MlaStatus>,
    /// No receiver of a user cluster may be at its address.
    infra: Option<Arc<InfraApiServer>>,
    /// Ends the workers.
    stop: CancellationToken,
    running: BTreeMap<StreamName, RunningStream>,
    workers: JoinSet<anyhow::Result<StreamName>>,
    /// The stream of each worker.
    names: HashMap<task::Id, StreamName>,
}

struct RunningStream {
    stream: Arc<Stream>,
    settings: watch::Sender<WorkerSettings>,
}

impl StreamRunner {
    /// Without workers. They end with `stop`, or with [`StreamRunner::end`].
    pub(super) fn new(
        streams: Arc<Streams>,
        mla: &MlaSettings,
        status: Arc<MlaStatus>,
        infra: Option<Arc<InfraApiServer>>,
        stop: &CancellationToken,
    ) -> Self {
        Self {
            streams,
            mla: mla.clone(),
            common: Arc::new(common(mla, infra.clone())),
            status,
            infra,
            stop: stop.child_token(),
            running: BTreeMap::new(),
            workers: JoinSet::new(),
            names: HashMap::new(),
        }
    }

    /// The folder of all queues.
    pub(super) fn folder(&self) -> &str {
        &self.mla.queue.folder
    }

    /// Uses other settings for all streams from the next [`StreamRunner::apply`] on. They have the
    /// same folder.
    pub(super) fn configure(&mut self, mla: &MlaSettings) {
        let known = &self.mla;
        let is_same =
            known.flush == mla.flush && known.batch == mla.batch && known.allow_cidrs == mla.allow_cidrs;
        if !is_same {
            self.common = Arc::new(common(mla, self.infra.clone()));
        }
        self.mla = mla.clone();
    }

    /// Ends all workers. Their queues stay on the disk; returns the number of samples in them.
    pub(super) async fn end(mut self) -> u64 {
        // A page that comes after the last write of its worker would be lost without being counted.
        for name in self.running.keys() {
            self.streams.remove(name);
        }
        self.stop.cancel();
        while self.next_ended().await.is_some() {}
        let queues = self.status.queues().into_iter();
        let own = queues.filter(|queue| self.running.contains_key(&queue.stream));
        let left = own.map(|queue| queue.samples).sum();
        for name in self.running.keys() {
            self.status.remove_queue(name);
        }
        left
    }

    /// Starts, changes and ends streams so that they follow `all`.
    pub(super) fn apply(&mut self, all: &AllStreamSettings) {
        let count = self.running.keys().chain(all.keys());
        let count = count.collect::<BTreeSet<_>>().len();
        let share = self.mla.queue.max_bytes / (count.max(1) as u64);
        for (name, running) in &self.running {
            let new = all.get(name);
            if new.is_none() {
                self.streams.remove(name);
            } else if self.streams.get(name).is_none() {
                self.streams.insert(name.clone(), Arc::clone(&running.stream));
            }
            running.settings.send_modify(|known| {
                known.share = share;
                known.common = Arc::clone(&self.common);
                let is_same = match (new, &known.stream) {
                    (Some(new), Some(known)) => is_same(new, known),
                    (None, None) => true,
                    _ => false,
                };
                if !is_same {
                    known.stream = new.map(|new| Arc::new(new.clone()));
                }
            });
        }
        for (name, settings) in all.iter() {
            if !self.running.contains_key(name) {
                self.start(name, settings, share);
            }
        }
    }

    fn start(&mut self, name: &StreamName, settings: &StreamSettings, share: u64) {
        let memory = Arc::new(self.streams.requests.share());
        let table = self.streams.table.share();
        let stream = Stream::new(table, Arc::clone(&memory), settings, &self.common.batch);
        let stream = Arc::new(stream);
        let settings = Arc::new(settings.clone());
        let (sender, receiver) = watch::channel(WorkerSettings {
            stream: Some(Arc::clone(&settings)),
            share,
            common: Arc::clone(&self.common),
        });
        let limits = &settings.limits;
        let disk = StreamDisk::new(
            queue_folder(Path::new(&self.mla.queue.folder), name),
            queue_settings(limits.queue_bytes, share, limits.queue_age),
            memory,
        );
        let parts = WorkerParts {
            name: name.clone(),
            stream: Arc::clone(&stream),
            settings: receiver,
            status: Arc::clone(&self.status),
            stop: self.stop.clone(),
        };
        let worker = self.workers.spawn(worker::run(parts, settings, disk));
        self.names.insert(worker.id(), name.clone());
        self.streams.insert(name.clone(), Arc::clone(&stream));
        let running = RunningStream {
            stream,
            settings: sender,
        };
        self.running.insert(name.clone(), running);
    }

    /// Removes the queues of streams that are neither running nor `configured`: they were removed
    /// while the collector did not run. Blocking work is done on a thread of its own.
    pub(super) fn remove_leftovers(&self, configured: &BTreeSet<StreamName>) -> JoinHandle<()> {
        let all = PathBuf::from(&self.mla.queue.folder);
        // A stream with invalid settings does not run; its samples are sent once they are valid.
        let used = self.running.keys().chain(configured);
        let used: BTreeSet<_> = used.map(|name| queue_folder(&all, name)).collect();
        task::spawn_blocking(move || {
            let Ok(entries) = std::fs::read_dir(&all) else {
                return;
            };
            for path in entries.flatten().map(|entry| entry.path()) {
                let name = path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .unwrap_or_default();
                let is_queue = name == FLEET_FOLDER || name.starts_with(CLUSTER_PREFIX);
                if !is_queue || used.contains(&path) {
                    continue;
                }
                match std::fs::remove_dir_all(&path) {
                    Ok(()) => {
                        tracing::info!(folder = %path.display(), "removed the queue of a stream that is gone");
                    }
                    Err(error) => {
                        tracing::warn!(folder = %path.display(), %error, "cannot remove the queue of a stream that is gone");
                    }
                }
            }
        })
    }

    /// Waits for a worker to end; returns its stream. None without workers.
    pub(super) async fn next_ended(&mut self) -> Option<StreamName> {
        let ended = self.workers.join_next_with_id().await?;
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let name = self.names.remove(&id)?;
        match ended {
            Ok((_, Ok(_))) => {}
            Ok((_, Err(error))) => tracing::error!(stream = %name, %error, "the worker of a stream ended"),
            Err(error) => tracing::error!(stream = %name, %error, "the worker of a stream panicked"),
        }
        Some(name)
    }

    /// Takes note of a worker that has ended. A stream that is still there is started again.
    pub(super) fn ended(&mut self, name: &StreamName, all: &AllStreamSettings) {
        self.running.remove(name);
        self.streams.remove(name);
        self.status.remove_queue(name);
        self.apply(all);
    }
}

/// The settings of all streams. Nothing of a tenant is sent to `infra`.
fn common(mla: &MlaSettings, infra: Option<Arc<InfraApiServer>>) -> CommonSettings {
    CommonSettings {
        flush: mla.flush.clone(),
        batch: mla.batch.clone(),
        guard: Arc::new(DialGuard::new(mla.dial_rules(), infra, "mla.allowCIDRs")),
    }
}

/// Whether settings are equal.
fn is_same(a: &StreamSettings, b: &StreamSettings) -> bool {
    a.has_endpoint_of(b)
        && a.external_labels == b.external_labels
        && a.placement_labels == b.placement_labels
        && a.relabel == b.relabel
        && a.min_gap == b.min_gap
        && a.limits == b.limits
        && (a.suspend, a.guests) == (b.suspend, b.guests)
        && a.problem == b.problem
}

fn queue_folder(all: &Path, name: &StreamName) -> PathBuf {
    match name {
        StreamName::Fleet => all.join(FLEET_FOLDER),
        StreamName::Tenant(cluster) => all.join(format!("{CLUSTER_PREFIX}{cluster}")),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        pin::pin,
        task::Poll,
        time::{Duration, SystemTime},
    };

    use virtfleet_queue::{Queue, QueueSettings, RecordHead};

    use super::*;
    use crate::mla::stream::tests::settings;

    fn tenant(name: &str) -> StreamName {
        StreamName::Tenant(name.parse().unwrap())
    }

    /// A queue with one record.
    fn queue(folder: &Path) {
        let settings = QueueSettings::new(1 << 20, Duration::from_hours(1));
        let now = SystemTime::now();
        let (mut queue, _) = Queue::open(folder, settings, now).unwrap();
        // Not over the maximum age.
        let at_ms = i64::try_from(crate::clock::unix_ms()).unwrap();
        let head = RecordHead {
            samples: 1,
            oldest_ms: at_ms,
            newest_ms: at_ms,
            kind: 0,
        };
        queue.append(head, b"request", now).unwrap();
        queue.sync().unwrap();
    }

    /// Settings with queues in this folder.
    fn queues_in(folder: &Path) -> MlaSettings {
        MlaSettings {
            queue: crate::config::MlaQueueSettings {
                folder: folder.display().to_string(),
                ..Default::default()
            },
            ..MlaSettings::default()
        }
    }

    #[tokio::test]
    async fn streams_that_end_take_no_more_pages() {
        let folder = tempfile::tempdir().unwrap();
        let (streams, stop) = (Arc::<Streams>::default(), CancellationToken::new());
        let mla = queues_in(folder.path());
        let mut runner = StreamRunner::new(Arc::clone(&streams), &mla, Arc::default(), None, &stop);
        runner.apply(&Arc::new(BTreeMap::from([(tenant("runs"), settings())])));
        assert!(!streams.is_empty());
        let mut ending = pin!(runner.end());
        let is_pending = poll_fn(|context| Poll::Ready(ending.as_mut().poll(context).is_pending())).await;
        assert!(is_pending, "the worker still runs");
        assert!(streams.is_empty());
        ending.await;
    }

    #[tokio::test]
    async fn what_is_left_in_queues_is_counted_when_streams_end() {
        let folder = tempfile::tempdir().unwrap();
        queue(&folder.path().join("cluster-runs"));
        let (mla, stop) = (queues_in(folder.path()), CancellationToken::new());
        let mut runner = StreamRunner::new(Arc::default(), &mla, Arc::default(), None, &stop);
        runner.apply(&Arc::new(BTreeMap::from([(tenant("runs"), settings())])));
        assert_eq!(runner.end().await, 1);
    }

    #[tokio::test]
    async fn only_queues_of_streams_that_are_gone_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let all = folder.path();
        let mla = queues_in(all);
        for name in ["fleet", "cluster-runs", "cluster-invalid", "cluster-gone"] {
            queue(&all.join(name));
        }
        // Not of a queue.
        for name in ["lost+found", "clusters"] {
            std::fs::create_dir(all.join(name)).unwrap();
        }
        std::fs::write(all.join("cluster-file"), "a file").unwrap();
        let stop = CancellationToken::new();
        let mut runner = StreamRunner::new(Arc::default(), &mla, Arc::default(), None, &stop);
        let running = [(tenant("runs"), settings())];
        runner.apply(&Arc::new(BTreeMap::from(running)));
        // Its settings are invalid, so that it does not run.
        let configured = BTreeSet::from([tenant("invalid")]);
        runner.remove_leftovers(&configured).await.unwrap();
        let left = std::fs::read_dir(all).unwrap();
        let left: BTreeSet<_> = left
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let kept = [
            "cluster-file",
            "cluster-invalid",
            "cluster-runs",
            "clusters",
            "lost+found",
        ];
        assert_eq!(left, kept.map(str::to_owned).into());
        // What is left of a queue is complete.
        let settings = QueueSettings::new(1 << 20, Duration::from_hours(1));
        let (_, recovery) = Queue::open(&all.join("cluster-invalid"), settings, SystemTime::now()).unwrap();
        assert_eq!(recovery.records, 1);
    }
}
