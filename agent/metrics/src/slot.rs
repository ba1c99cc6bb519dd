//! An enabled collector between scrapes: its location, last failure and limit of series.

use std::panic::{AssertUnwindSafe, catch_unwind};

use virtfleet_agent_core::settings::chain;

use super::{
    CollectError, Collector, Context, Entry,
    runner::{FinishedRun, Job, RunOutcome},
};

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
    /// Error of the last scrape, so that a lasting failure is logged once.
    pub(super) failing: Option<String>,
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
        if self.failing.take().is_some() {
            tracing::info!(collector = self.entry.name, "collector works again");
        }
    }

    /// Logs a warning only when a failure begins or changes; the success series shows a lasting
    /// failure.
    pub(super) fn record_failure(&mut self, error: &CollectError) {
        let collector = self.entry.name;
        if let CollectError::NoData(reason) = error {
            tracing::debug!(collector, %reason, "no data");
            self.failing = None;
            return;
        }
        let text = chain(error);
        if self.failing.as_ref() == Some(&text) {
            tracing::debug!(collector, error = text, "collector still failing");
        } else {
            tracing::warn!(collector, error = text, "collector failed");
            self.failing = Some(text);
        }
    }
}
