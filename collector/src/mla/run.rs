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

use super::{
    feed::PageFeed,
    platform::PlatformSeries,
    settings::StreamRegistry,
    status::MlaStatus,
    streams::{StreamRunner, Streams},
    worker::REMOVAL_GRACE,
};
use crate::{
    clock::unix_ms,
    config::{CollectorConfig, MlaSettings},
    dial_guard::{DialGuard, InfraApiServer},
    fleet::{Fleet, FleetRead as _},
    leader::WriteAccess,
};

/// Maximum time for all streams to end at shutdown: they send, and write the rest.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(8);
/// Interval at which a process checks whether it still leads.
const LEADERSHIP_INTERVAL: Duration = Duration::from_secs(1);

/// The running streams.
#[derive(Debug)]
pub(crate) struct RunningStreams {
    /// Takes the pages of VMs; none if MLA is off.
    pub(crate) feed: Option<Arc<PageFeed>>,
    runner: Option<JoinHandle<()>>,
}

impl RunningStreams {
    /// Starts all streams of the registry, until `stop`. No receiver of a user cluster may be at an
    /// address of `infra`. Nothing is started if MLA is off.
    pub(crate) fn start(
        config: &CollectorConfig,
        fleet: &Arc<Fleet>,
        registry: &Arc<StreamRegistry>,
        status: &Arc<MlaStatus>,
        write_access: WriteAccess,
        infra: Option<Arc<InfraApiServer>>,
        stop: &CancellationToken,
    ) -> Self {
        let Some(mla) = config.mla.clone() else {
            return Self {
                feed: None,
                runner: None,
            };
        };
        let streams = Arc::new(Streams::default());
        let feed = PageFeed::new(
            Arc::clone(fleet),
            Arc::clone(&streams),
            Arc::clone(status),
            write_access.clone(),
        );
        let feed = Arc::new(feed);
        let guard = DialGuard::new(mla.dial_rules(), infra, "mla.allowCIDRs");
        let run = run(RunParts {
            mla,
            fleet: Arc::clone(fleet),
            registry: Arc::clone(registry),
            streams,
            feed: Arc::clone(&feed),
            status: Arc::clone(status),
            write_access,
            guard: Arc::new(guard),
            interval: config.scrape.interval.0,
            stop: stop.clone(),
        });
        Self {
            feed: Some(feed),
            runner: Some(tokio::spawn(run)),
        }
    }

    /// Waits until all queues are written. Call it when `stop` is cancelled.
    pub(crate) async fn end(self) {
        let Some(runner) = self.runner else { return };
        if timeout(SHUTDOWN_TIMEOUT, runner).await.is_err() {
            tracing::error!("the queues of streams could not be written in time");
        }
    }
}

struct RunParts {
    mla: MlaSettings,
    fleet: Arc<Fleet>,
    registry: Arc<StreamRegistry>,
    streams: Arc<Streams>,
    feed: Arc<PageFeed>,
    status: Arc<MlaStatus>,
    write_access: WriteAccess,
    guard: Arc<DialGuard>,
    interval: Duration,
    stop: CancellationToken,
}

async fn run(parts: RunParts) {
    let stop = parts.stop.clone();
    let mut runner = StreamRunner::new(
        Arc::clone(&parts.streams),
        parts.mla,
        parts.status,
        parts.guard,
        stop.clone(),
    );
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
    runner.apply(&known);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            changed = settings.changed() => {
                if changed.is_err() {
                    break;
                }
                known = settings.borrow_and_update().clone();
                runner.apply(&known);
            }
            Some(ended) = runner.next_ended() => runner.ended(&ended, &known),
            _ = ticks.tick() => {
                if parts.write_access.leads() {
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
                if synced.is_none() && parts.fleet.synced() {
                    synced = Some(Instant::now());
                }
                if !has_cleaned && synced.is_some_and(|since| since.elapsed() >= REMOVAL_GRACE) {
                    has_cleaned = true;
                    drop(runner.remove_leftovers(&parts.registry.names()));
                }
            }
        }
    }
    // The workers write what they have and end.
    while runner.next_ended().await.is_some() {}
}
