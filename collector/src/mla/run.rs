//! Runs all streams until the collector stops.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::index::FleetIndex;

use super::{
    feed::PageFeed,
    platform::PlatformSeries,
    section::MlaSection,
    settings::{AllStreamSettings, StreamName, StreamRegistry},
    start::MlaSources,
    status::MlaStatus,
    streams::{StreamRunner, Streams},
    worker::REMOVAL_GRACE,
};
use crate::{
    clock::unix_ms,
    config::CollectorConfig,
    dial_guard::InfraApiServer,
    fleet::{Fleet, FleetRead as _},
    leader::WriteAccess,
};

/// Maximum time for all streams to end at shutdown: they send, and write the rest.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(8);
/// Interval at which a process checks whether it still leads.
const LEADERSHIP_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct RunningStreams {
    /// Takes the pages of VMs.
    pub(crate) feed: Arc<PageFeed>,
    runner: JoinHandle<()>,
}

impl RunningStreams {
    /// Starts the streams of `sources`, until `stop`; none while MLA is off. No receiver of a user
    /// cluster may be at an address of `infra`.
    pub(crate) fn start(
        config: &CollectorConfig,
        fleet: &Arc<Fleet>,
        sources: &MlaSources,
        status: &Arc<MlaStatus>,
        write_access: WriteAccess,
        infra: Option<Arc<InfraApiServer>>,
        stop: &CancellationToken,
    ) -> Self {
        let streams = Arc::new(Streams::default());
        let feed = PageFeed::new(
            Arc::clone(fleet),
            Arc::clone(&streams),
            Arc::clone(status),
            write_access.clone(),
        );
        let feed = Arc::new(feed);
        let run = run(RunParts {
            section: sources.section.clone(),
            fleet: Arc::clone(fleet),
            registry: Arc::clone(&sources.registry),
            streams,
            feed: Arc::clone(&feed),
            status: Arc::clone(status),
            write_access,
            infra,
            interval: config.scrape.interval.0,
            stop: stop.clone(),
        });
        Self {
            feed,
            runner: tokio::spawn(run),
        }
    }

    /// Waits until all queues are written. Call it when `stop` is cancelled.
    pub(crate) async fn end(self) {
        if timeout(SHUTDOWN_TIMEOUT, self.runner).await.is_err() {
            tracing::error!("the queues of streams could not be written in time");
        }
    }
}

struct RunParts {
    section: MlaSection,
    fleet: Arc<Fleet>,
    registry: Arc<StreamRegistry>,
    streams: Arc<Streams>,
    feed: Arc<PageFeed>,
    status: Arc<MlaStatus>,
    write_access: WriteAccess,
    infra: Option<Arc<InfraApiServer>>,
    interval: Duration,
    stop: CancellationToken,
}

async fn run(mut parts: RunParts) {
    let stop = parts.stop.clone();
    let mut runner: Option<StreamRunner> = None;
    let mut platform = PlatformSeries::new(Arc::clone(&parts.streams));
    let mut ticks = interval(parts.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut checks = interval(LEADERSHIP_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut leads = false;
    let mut synced: Option<Instant> = None;
    let mut has_cleaned = false;
    let mut settings = parts.registry.settings();
    let mut known = settings.borrow_and_update().clone();
    parts.follow(&mut runner, &known).await;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            changed = settings.changed() => {
                if changed.is_err() {
                    break;
                }
                known = settings.borrow_and_update().clone();
                parts.follow(&mut runner, &known).await;
            }
            Ok(()) = parts.section.changed() => parts.follow(&mut runner, &known).await,
            Some(ended) = next_ended(&mut runner) => {
                if let Some(runner) = &mut runner {
                    runner.ended(&ended, &known);
                }
            }
            _ = ticks.tick() => {
                if parts.write_access.leads() && !parts.streams.is_empty() {
                    let at_ms = i64::try_from(unix_ms()).unwrap_or(i64::MAX);
                    platform.write(&parts.fleet.snapshot(), at_ms);
                }
            }
            _ = checks.tick() => {
                let leads_now = parts.write_access.leads();
                if leads && !leads_now {
                    // The backlog is still sent; the other process writes from now on.
                    parts.feed.forget_all();
                }
                leads = leads_now;
                if runner.is_none() {
                    // While MLA is off, the operator's stream has no settings, and keeps its queue.
                    (synced, has_cleaned) = (None, false);
                } else if synced.is_none() && parts.fleet.read(FleetIndex::synced) {
                    synced = Some(Instant::now());
                }
                let is_due = synced.is_some_and(|since| since.elapsed() >= REMOVAL_GRACE);
                if let Some(runner) = runner.as_ref().filter(|_| is_due && !has_cleaned) {
                    has_cleaned = true;
                    drop(runner.remove_leftovers(&parts.registry.names()));
                }
            }
        }
    }
    // The workers write what they have and end.
    while next_ended(&mut runner).await.is_some() {}
}

/// Waits for a worker to end; returns its stream. None without workers.
async fn next_ended(runner: &mut Option<StreamRunner>) -> Option<StreamName> {
    runner.as_mut()?.next_ended().await
}

impl RunParts {
    /// Lets the streams follow the present section and the settings `known`.
    async fn follow(&mut self, runner: &mut Option<StreamRunner>, known: &AllStreamSettings) {
        let section = self.section.borrow_and_update().clone();
        let folder = section.as_ref().map(|mla| mla.queue.folder.as_str());
        // Queues stay where they are: those of another folder are sent when it is used again.
        if let Some(former) = runner.take_if(|runner| Some(runner.folder()) != folder) {
            let former_folder = former.folder().to_owned();
            let left = former.end().await;
            note_left(&former_folder, left, folder.is_some());
            self.feed.forget_all();
        }
        let Some(mla) = section else { return };
        let runner = runner.get_or_insert_with(|| {
            let streams = Arc::clone(&self.streams);
            StreamRunner::new(
                streams,
                &mla,
                Arc::clone(&self.status),
                self.infra.clone(),
                &self.stop,
            )
        });
        runner.configure(&mla);
        runner.apply(known);
    }
}

/// Says where samples are left that this process does not send any more.
fn note_left(folder: &str, samples: u64, is_on: bool) {
    if samples == 0 {
        return;
    }
    if is_on {
        tracing::warn!(
            folder,
            samples,
            "samples in the former folder of queues are not sent any more: set mla.queue.folder to it \
             again, or remove it"
        );
    } else {
        tracing::info!(folder, samples, "MLA is off, and its queues are kept");
    }
}
