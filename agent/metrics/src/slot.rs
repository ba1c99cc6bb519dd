//! An enabled collector between scrapes: its location, last failure and limit of series.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use virtfleet_agent_core::settings::chain;

use super::{
    CollectError, Collector, Context, Entry,
    runner::{FinishedRun, Job, RunOutcome},
};

/// Minimum time between two warnings about a collector that keeps failing. Its error may have other
/// words in each scrape: it counts entries that were left out, and quotes the first one.
const WARNING_INTERVAL: Duration = Duration::from_mins(10);

enum Location {
    Idle(Box<dyn Collector>),
    /// In the runner's thread; after the scrape: it hangs there.
    Running,
    /// It panicked, so its state is not trusted.
    Panicked,
}

/// An enabled collector.
pub(super) struct Slot {
    pub(super) entry: &'static Entry,
    location: Location,
    /// Maximum number of series.
    limit: usize,
    /// Error of the last scrape.
    pub(super) failing: Option<String>,
    warnings: FailureWarnings,
    /// Whether the last scrape dropped series.
    dropping: bool,
}

impl Slot {
    pub(super) fn new(entry: &'static Entry, collector: Box<dyn Collector>, limit: usize) -> Self {
        Self {
            entry,
            location: Location::Idle(collector),
            limit,
            failing: None,
            warnings: FailureWarnings::default(),
            dropping: false,
        }
    }

    /// The job for this scrape.
    ///
    /// # Errors
    /// The collector still hangs in an earlier scrape, or cannot be rebuilt after a panic.
    pub(super) fn job(&mut self, index: usize, context: &Context) -> Result<Job, CollectError> {
        if matches!(self.location, Location::Panicked) {
            let built = catch_unwind(AssertUnwindSafe(|| (self.entry.build)(context).ok()));
            if let Ok(Some(collector)) = built {
                self.location = Location::Idle(collector);
            }
        }
        match std::mem::replace(&mut self.location, Location::Running) {
            Location::Idle(collector) => Ok(Job {
                index,
                collector,
                limit: self.limit,
            }),
            Location::Running => Err(CollectError::failed("it still hangs in an earlier scrape")),
            Location::Panicked => {
                self.location = Location::Panicked;
                Err(CollectError::failed("it panicked and cannot be rebuilt"))
            }
        }
    }

    /// Takes the collector back, in time or late.
    pub(super) fn back(&mut self, collector: Option<Box<dyn Collector>>) {
        self.location = collector.map_or(Location::Panicked, Location::Idle);
    }

    /// Takes the collector back and returns whether it succeeded.
    pub(super) fn settle(&mut self, finished: FinishedRun) -> bool {
        self.back(finished.collector);
        let (whole, dropped) = (matches!(finished.outcome, RunOutcome::Written), finished.dropped);
        if whole || dropped > 0 {
            let drops = dropped > 0;
            if drops && !self.dropping {
                let (collector, limit) = (self.entry.name, self.limit);
                tracing::warn!(
                    collector,
                    dropped,
                    limit,
                    "series were dropped; increase metrics.maxSeries or metrics.maxSeriesOf"
                );
            }
            self.dropping = drops;
        }
        match finished.outcome {
            RunOutcome::Written => {
                self.record_success();
                true
            }
            RunOutcome::Failed(error) => {
                self.record_failure(&error);
                false
            }
        }
    }

    fn record_success(&mut self) {
        self.warnings = FailureWarnings::default();
        if self.failing.take().is_some() {
            tracing::info!(collector = self.entry.name, "collector works again");
        }
    }

    /// Logs a warning when a failure begins, and at most once in [`WARNING_INTERVAL`] when it
    /// changes; the success series shows a lasting failure.
    pub(super) fn record_failure(&mut self, error: &CollectError) {
        let collector = self.entry.name;
        if let CollectError::NoData(reason) = error {
            tracing::debug!(collector, %reason, "no data");
            self.failing = None;
            self.warnings = FailureWarnings::default();
            return;
        }
        let text = chain(error);
        if self.warnings.is_due(&text, Instant::now()) {
            tracing::warn!(collector, error = text, "collector failed");
        } else {
            tracing::debug!(collector, error = text, "collector still failing");
        }
        self.failing = Some(text);
    }
}

/// Warnings about a failure since it began.
#[derive(Default)]
struct FailureWarnings {
    /// Text and time of the last one.
    last: Option<(String, Instant)>,
}

impl FailureWarnings {
    /// Whether to log a warning with this text now. If so, it counts as logged.
    fn is_due(&mut self, text: &str, now: Instant) -> bool {
        if let Some((last, at)) = &self.last
            && (last == text || now.saturating_duration_since(*at) < WARNING_INTERVAL)
        {
            return false;
        }
        self.last = Some((text.to_owned(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_whose_words_change_is_logged_once_in_an_interval() {
        let (mut warnings, begun) = (FailureWarnings::default(), Instant::now());
        let mut logged = Vec::new();
        for scrape in 0..100 {
            let now = begun + Duration::from_secs(15) * scrape;
            if warnings.is_due(&format!("{scrape} entries were left out"), now) {
                logged.push(scrape);
            }
        }
        assert_eq!(logged, [0, 40, 80]);
        let later = begun + Duration::from_hours(1);
        assert!(warnings.is_due("the same", later));
        assert!(!warnings.is_due("the same", later + Duration::from_hours(1)));
    }
}
