//! One stream while the collector runs: takes pages and makes write requests of them. Its worker
//! queues and sends these.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use virtfleet_collector_core::mla::{
    GuestPage, SourceKey, StreamSeries, TableShare,
    memory::MemoryShare,
    page_rules::SampleLimits,
    relabel::CompiledRules,
    stream::{PullTime, StreamPageResult, TargetValues},
};

use super::{
    requests::{HeldRequest, Requests},
    settings::{PlacementLabel, StreamSettings},
    targets,
};
use crate::config::MlaBatchSettings;

/// Interval between two log messages that name a VM whose page exceeds a limit. The status of each
/// VM has the others.
const NAMING_INTERVAL: Duration = Duration::from_mins(1);

/// A stream. Share it as `Arc<Stream>`.
#[derive(Debug)]
pub(super) struct Stream {
    state: Mutex<StreamContent>,
    /// What its pages need counts here.
    pub(super) table: Arc<TableShare>,
    /// Counts its requests in memory.
    pub(super) memory: Arc<MemoryShare>,
    /// Notified when a request is finished, or the first sample of one is there.
    pub(super) changed: Notify,
}

#[derive(Debug)]
struct StreamContent {
    series: StreamSeries,
    requests: Requests,
    /// When the first sample of the unfinished request was written.
    since: Option<Instant>,
    placement: Arc<[PlacementLabel]>,
    limits: SampleLimits,
    min_gap: Duration,
    guests: bool,
    suspended: bool,
    unwritten: UnwrittenSamples,
    /// When a VM over a limit was named in the log.
    named: Option<Instant>,
}

/// Samples of pages that were not put into requests.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UnwrittenSamples {
    /// They exceeded a limit.
    pub(super) over_limit: u64,
    /// Their time was not after that of the VM's last page.
    pub(super) not_later: u64,
    /// After the rules they had the labels of another sample of their page.
    pub(super) collided: u64,
}

/// What a page of a VM needs of the stream's settings.
#[derive(Debug, Clone)]
pub(super) struct PageSettings {
    pub(super) placement: Arc<[PlacementLabel]>,
    pub(super) limits: SampleLimits,
    /// Whether the page is to be written, by the interval of the stream.
    pub(super) is_due: bool,
}

pub(super) enum StreamPage<'a> {
    Complete(&'a GuestPage),
    /// The pull failed, or the page is rejected.
    Failed,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct StreamCounts {
    /// Samples that were put into requests.
    pub(super) samples: u64,
    /// Samples of pages that were not put into requests.
    pub(super) unwritten: UnwrittenSamples,
    /// Samples that were dropped because the worker did not take them before memory was used up.
    pub(super) untaken: u64,
}

impl Stream {
    pub(super) fn new(
        table: Arc<TableShare>,
        memory: Arc<MemoryShare>,
        settings: &StreamSettings,
        batch: &MlaBatchSettings,
    ) -> Self {
        let mut series = StreamSeries::new(&table, targets::stamp(settings), rules(settings));
        series.set_limits(targets::series_limits(settings));
        Self {
            state: Mutex::new(StreamContent {
                series,
                requests: Requests::new(batch, Arc::clone(&memory)),
                since: None,
                placement: settings.placement_labels.as_slice().into(),
                limits: targets::limits(settings),
                min_gap: settings.min_gap,
                guests: settings.guests,
                suspended: settings.suspend,
                unwritten: UnwrittenSamples::default(),
                named: None,
            }),
            table,
            memory,
            changed: Notify::new(),
        }
    }

    /// Uses other settings from the next pages on.
    pub(super) fn configure(&self, settings: &StreamSettings) {
        let mut state = self.lock();
        state.series.configure(targets::stamp(settings), rules(settings));
        state.series.set_limits(targets::series_limits(settings));
        state.placement = settings.placement_labels.as_slice().into();
        (state.limits, state.min_gap) = (targets::limits(settings), settings.min_gap);
        (state.guests, state.suspended) = (settings.guests, settings.suspend);
    }

    /// Bounds its requests differently.
    pub(super) fn set_batch(&self, batch: &MlaBatchSettings) {
        self.lock().requests.set_batch(batch);
    }

    /// The settings for a page of a VM whose pull began at `at_ms`; none if the stream takes none.
    pub(super) fn page_settings(&self, source: &SourceKey, at_ms: i64) -> Option<PageSettings> {
        let state = self.lock();
        (state.guests && !state.suspended).then(|| PageSettings {
            placement: Arc::clone(&state.placement),
            limits: state.limits,
            is_due: state.is_due(source, at_ms),
        })
    }

    /// Whether the stream takes the platform's series at this time.
    pub(super) fn takes_platform(&self, at_ms: i64) -> bool {
        let state = self.lock();
        !state.suspended && state.is_due(&SourceKey::Platform, at_ms)
    }

    pub(super) fn page(
        &self,
        source: &SourceKey,
        targets: &TargetValues,
        page: &StreamPage<'_>,
        time: PullTime,
    ) -> StreamPageResult {
        let mut state = self.lock();
        let StreamContent { series, requests, .. } = &mut *state;
        let result = match page {
            StreamPage::Complete(page) => series.page(source, targets, page, time, requests),
            StreamPage::Failed => series.failed(source, targets, time, requests),
        };
        state.unwritten.over_limit += result.over_limit;
        state.unwritten.not_later += result.not_later;
        state.unwritten.collided += result.collided;
        self.written(state);
        result
    }

    /// Ends the series of a source that has gone.
    pub(super) fn gone(&self, source: &SourceKey, at_ms: i64) {
        let mut state = self.lock();
        let StreamContent { series, requests, .. } = &mut *state;
        series.gone(source, at_ms, requests);
        self.written(state);
    }

    /// Ends the series of all sources.
    pub(super) fn end_all(&self, at_ms: i64) {
        let mut state = self.lock();
        let sources: Vec<_> = state.series.sources().cloned().collect();
        let StreamContent { series, requests, .. } = &mut *state;
        for source in &sources {
            series.gone(source, at_ms, requests);
        }
        self.written(state);
    }

    /// Forgets what was written, without ending it: another process writes the same series now.
    pub(super) fn forget_all(&self) {
        self.lock().series.forget();
    }

    /// Whether the log may name a VM whose page exceeds a limit now.
    pub(super) fn is_naming_due(&self) -> bool {
        let mut state = self.lock();
        let now = Instant::now();
        let is_due = state
            .named
            .is_none_or(|last| now.duration_since(last) >= NAMING_INTERVAL);
        if is_due {
            state.named = Some(now);
        }
        is_due
    }

    /// Counts samples of a page that is rejected.
    pub(super) fn rejected(&self, samples: u64) {
        self.lock().unwritten.over_limit += samples;
    }

    /// The finished requests. With `before`, the unfinished one is finished if its first sample is
    /// older.
    pub(super) fn take(&self, before: Option<Instant>) -> Vec<HeldRequest> {
        let mut state = self.lock();
        if let (Some(before), Some(since)) = (before, state.since)
            && since <= before
        {
            state.requests.flush();
            state.since = None;
        }
        state.requests.take()
    }

    pub(super) fn counts(&self) -> StreamCounts {
        let state = self.lock();
        StreamCounts {
            samples: state.requests.samples(),
            unwritten: state.unwritten,
            untaken: state.requests.dropped(),
        }
    }

    fn written(&self, mut state: MutexGuard<'_, StreamContent>) {
        let is_first = state.since.is_none() && state.requests.is_pending();
        if is_first {
            state.since = Some(Instant::now());
        } else if !state.requests.is_pending() {
            state.since = None;
        }
        if is_first || state.requests.has_finished() {
            self.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, StreamContent> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamContent {
    /// Whether a page with this time is to be written. One that is not later than the last one is:
    /// it is counted.
    fn is_due(&self, source: &SourceKey, at_ms: i64) -> bool {
        let Some(last_ms) = self.series.last_ms(source) else {
            return true;
        };
        let since = u128::try_from(at_ms.saturating_sub(last_ms)).unwrap_or_default();
        since == 0 || since >= self.min_gap.as_millis()
    }
}

/// The rules, which were validated with the settings.
fn rules(settings: &StreamSettings) -> CompiledRules {
    CompiledRules::new(&settings.relabel).unwrap_or_else(|error| {
        tracing::error!(%error, "relabelling rules cannot be used: all series are dropped");
        CompiledRules::drop_all()
    })
}

#[cfg(test)]
#[path = "stream_tests.rs"]
pub(super) mod tests;
