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
use virtfleet_collector_core::mla::FamilyTable;
use virtfleet_wire::ids::ClusterName;

use super::{
    disk::{StreamDisk, queue_settings},
    send::Endpoint,
    settings::{AllStreamSettings, StreamName, StreamSettings},
    status::MlaStatus,
    stream::Stream,
    worker::{self, WorkerParts, WorkerSettings},
};
use crate::{config::MlaSettings, dial_guard::DialGuard};

/// Folder of the queue of the operator's stream.
const FLEET_FOLDER: &str = "fleet";
/// Prefix of the folder of a user cluster's queue.
const CLUSTER_PREFIX: &str = "cluster-";

/// The streams that take samples. Share it as `Arc<Streams>`.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) table: Arc<FamilyTable>,
    streams: RwLock<BTreeMap<StreamName, Arc<Stream>>>,
}

impl Streams {
    /// The stream of a user cluster.
    pub(super) fn tenant(&self, cluster: Option<&ClusterName>) -> Option<(StreamName, Arc<Stream>)> {
        let name = StreamName::Tenant(cluster?.clone());
        let stream = self.get(&name)?;
        Some((name, stream))
    }

    /// A stream by its name.
    pub(super) fn get(&self, name: &StreamName) -> Option<Arc<Stream>> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        streams.get(name).cloned()
    }

    /// All streams.
    pub(super) fn all(&self) -> Vec<(StreamName, Arc<Stream>)> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        let all = streams.iter();
        all.map(|(name, stream)| (name.clone(), Arc::clone(stream)))
            .collect()
    }

    fn insert(&self, name: StreamName, stream: Arc<Stream>) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        streams.insert(name, stream);
    }

    fn remove(&self, name: &StreamName) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        streams.remove(name);
    }
}

/// Runs the workers of all streams.
pub(super) struct StreamRunner {
    streams: Arc<Streams>,
    mla: MlaSettings,
    status: Arc<MlaStatus>,
    /// For receivers of user clusters.
    guard: Arc<DialGuard>,
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
    pub(super) fn new(
        streams: Arc<Streams>,
        mla: MlaSettings,
        status: Arc<MlaStatus>,
        guard: Arc<DialGuard>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            streams,
            mla,
            status,
            guard,
            stop,
            running: BTreeMap::new(),
            workers: JoinSet::new(),
            names: HashMap::new(),
        }
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
        let stream = Arc::new(Stream::new(&self.streams.table, settings, &self.mla.batch));
        let settings = Arc::new(settings.clone());
        let (sender, receiver) = watch::channel(WorkerSettings {
            stream: Some(Arc::clone(&settings)),
            share,
        });
        let limits = &settings.limits;
        let disk = StreamDisk::new(
            queue_folder(Path::new(&self.mla.queue.folder), name),
            queue_settings(limits.queue_bytes, share, limits.queue_age),
        );
        let parts = WorkerParts {
            name: name.clone(),
            stream: Arc::clone(&stream),
            settings: receiver,
            flush: self.mla.flush.clone(),
            status: Arc::clone(&self.status),
            guard: match name {
                StreamName::Tenant(_) => Some(Arc::clone(&self.guard)),
                StreamName::Fleet => None,
            },
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

/// Whether settings are equal. The registry keeps the TLS configuration if its input is unchanged.
fn is_same(a: &StreamSettings, b: &StreamSettings) -> bool {
    is_same_endpoint(a.endpoint.as_ref(), b.endpoint.as_ref())
        && a.external_labels == b.external_labels
        && a.placement_labels == b.placement_labels
        && a.relabel == b.relabel
        && a.limits == b.limits
        && (a.suspend, a.guests) == (b.suspend, b.guests)
        && a.problem == b.problem
}

fn is_same_endpoint(a: Option<&Endpoint>, b: Option<&Endpoint>) -> bool {
    let (a, b) = match (a, b) {
        (Some(a), Some(b)) => (a, b),
        (None, None) => return true,
        _ => return false,
    };
    let is_same_tls = match (&a.tls, &b.tls) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    };
    is_same_tls
        && a.url == b.url
        && a.headers == b.headers
        && a.server_name == b.server_name
        && a.protocol == b.protocol
        && a.compression == b.compression
        && a.timeout == b.timeout
        && a.user_agent == b.user_agent
}

fn queue_folder(all: &Path, name: &StreamName) -> PathBuf {
    match name {
        StreamName::Fleet => all.join(FLEET_FOLDER),
        StreamName::Tenant(cluster) => all.join(format!("{CLUSTER_PREFIX}{cluster}")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use virtfleet_collector_core::dial::DialRules;
    use virtfleet_queue::{Queue, QueueSettings, RecordHead};

    use super::*;
    use crate::mla::settings::StreamLimits;

    fn settings() -> StreamSettings {
        StreamSettings {
            endpoint: None,
            external_labels: Vec::new(),
            placement_labels: Vec::new(),
            relabel: Vec::new(),
            limits: StreamLimits {
                queue_bytes: 1 << 20,
                queue_age: Duration::from_hours(1),
                samples_per_page: 100,
                label_names: 40,
                label_value_bytes: 100,
            },
            suspend: false,
            guests: true,
            certificate_ends: None,
            problem: None,
        }
    }

    fn tenant(name: &str) -> StreamName {
        StreamName::Tenant(name.parse().unwrap())
    }

    /// A queue with one record.
    fn queue(folder: &Path) {
        let settings = QueueSettings::new(1 << 20, Duration::from_hours(1));
        let now = SystemTime::now();
        let (mut queue, _) = Queue::open(folder, settings, now).unwrap();
        let head = RecordHead {
            samples: 1,
            oldest_ms: 1,
            newest_ms: 1,
            kind: 0,
        };
        queue.append(head, b"request", now).unwrap();
        queue.sync().unwrap();
    }

    #[tokio::test]
    async fn only_queues_of_streams_that_are_gone_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let all = folder.path();
        let mla = MlaSettings {
            queue: crate::config::MlaQueueSettings {
                folder: all.display().to_string(),
                ..Default::default()
            },
            ..MlaSettings::default()
        };
        for name in ["fleet", "cluster-runs", "cluster-invalid", "cluster-gone"] {
            queue(&all.join(name));
        }
        // Not of a queue.
        for name in ["lost+found", "clusters"] {
            std::fs::create_dir(all.join(name)).unwrap();
        }
        std::fs::write(all.join("cluster-file"), "a file").unwrap();
        let guard = DialGuard::new(DialRules::default(), None, "mla.allowCIDRs");
        let mut runner = StreamRunner::new(
            Arc::default(),
            mla,
            Arc::default(),
            Arc::new(guard),
            CancellationToken::new(),
        );
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
