//! One stream while the collector runs: takes pages and makes write requests of them. Its worker
//! queues and sends these.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::Notify;
use virtfleet_collector_core::mla::{
    FamilyTable, GuestPage, SourceKey, StreamSeries,
    page_rules::SampleLimits,
    relabel::CompiledRules,
    stream::{PullTime, StreamPageResult, TargetValues},
};
use virtfleet_remote_write::request::FinishedRequest;

use super::{
    requests::Requests,
    settings::{PlacementLabel, StreamSettings},
    targets,
};
use crate::config::MlaBatchSettings;

/// A stream. Share it as `Arc<Stream>`.
#[derive(Debug)]
pub(super) struct Stream {
    state: Mutex<StreamContent>,
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
    guests: bool,
    suspended: bool,
    /// Samples of pages that were rejected or dropped for a limit.
    over_limit: u64,
}

/// What a page of a VM needs of the stream's settings.
#[derive(Debug, Clone)]
pub(super) struct PageSettings {
    pub(super) placement: Arc<[PlacementLabel]>,
    pub(super) limits: SampleLimits,
}

/// What a page is in a stream.
pub(super) enum StreamPage<'a> {
    /// A complete page.
    Complete(&'a GuestPage),
    /// The pull failed, or the page is rejected.
    Failed,
}

/// Counters of a stream.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StreamCounts {
    /// Samples that were put into requests.
    pub(super) samples: u64,
    /// Samples that exceeded a limit.
    pub(super) over_limit: u64,
    /// Samples that the worker did not take in time.
    pub(super) untaken: u64,
}

impl Stream {
    pub(super) fn new(table: &FamilyTable, settings: &StreamSettings, batch: &MlaBatchSettings) -> Self {
        let stamp = targets::stamp(settings);
        Self {
            state: Mutex::new(StreamContent {
                series: StreamSeries::new(table, stamp, rules(settings)),
                requests: Requests::new(batch),
                since: None,
                placement: settings.placement_labels.as_slice().into(),
                limits: targets::limits(settings),
                guests: settings.guests,
                suspended: settings.suspend,
                over_limit: 0,
            }),
            changed: Notify::new(),
        }
    }

    /// Uses other settings from the next pages on.
    pub(super) fn configure(&self, settings: &StreamSettings) {
        let mut state = self.lock();
        state.series.configure(targets::stamp(settings), rules(settings));
        state.placement = settings.placement_labels.as_slice().into();
        state.limits = targets::limits(settings);
        (state.guests, state.suspended) = (settings.guests, settings.suspend);
    }

    /// The settings for a page of a guest; none if the stream takes none.
    pub(super) fn page_settings(&self) -> Option<PageSettings> {
        let state = self.lock();
        (state.guests && !state.suspended).then(|| PageSettings {
            placement: Arc::clone(&state.placement),
            limits: state.limits,
        })
    }

    /// Whether the stream takes the platform's series.
    pub(super) fn takes_platform(&self) -> bool {
        !self.lock().suspended
    }

    /// Writes a page of a source.
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
        state.over_limit += result.over_limit;
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

    /// Counts samples of a page that is rejected.
    pub(super) fn rejected(&self, samples: u64) {
        self.lock().over_limit += samples;
    }

    /// The finished requests. With `before`, the unfinished one is finished if its first sample is
    /// older.
    pub(super) fn take(&self, before: Option<Instant>) -> Vec<FinishedRequest> {
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
            over_limit: state.over_limit,
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

/// The rules, which were validated with the settings.
fn rules(settings: &StreamSettings) -> CompiledRules {
    CompiledRules::new(&settings.relabel).unwrap_or_else(|error| {
        tracing::error!(%error, "relabelling rules cannot be used: all series are dropped");
        CompiledRules::drop_all()
    })
}
