//! A collector that is on, from scrape to scrape: where it is, why it failed, how much it may write.

use std::panic::{AssertUnwindSafe, catch_unwind};

use virtfleet_agent_core::settings::chain;

use super::{
    CollectError, Collector, Context, Entry,
    runner::{Job, Outcome, Played},
};

/// Where a collector is.
enum Seat {
    Here(Box<dyn Collector>),
    /// On the thread that plays it; after the scrape: it hangs there.
    Away,
    /// It panicked. What a panic leaves behind is not trusted.
    Gone,
}

/// See the module.
pub(super) struct Slot {
    pub(super) entry: &'static Entry,
    seat: Seat,
    /// Series that it may write.
    limit: usize,
    /// Why the last scrape failed, so that a lasting failure is logged once.
    pub(super) failing: Option<String>,
    /// Whether the last scrape dropped series.
    dropping: bool,
}

impl Slot {
    pub(super) fn new(entry: &'static Entry, collector: Box<dyn Collector>, limit: usize) -> Self {
        Self {
            entry,
            seat: Seat::Here(collector),
            limit,
            failing: None,
            dropping: false,
        }
    }

    /// The job for this scrape; none when the collector still hangs in an earlier one, or cannot be built again.
    pub(super) fn job(&mut self, index: usize, context: &Context) -> Result<Job, CollectError> {
        if matches!(self.seat, Seat::Gone) {
            let built = catch_unwind(AssertUnwindSafe(|| (self.entry.build)(context).ok()));
            if let Ok(Some(collector)) = built {
                self.seat = Seat::Here(collector);
            }
        }
        match std::mem::replace(&mut self.seat, Seat::Away) {
            Seat::Here(collector) => Ok(Job {
                index,
                collector,
                limit: self.limit,
            }),
            Seat::Away => Err(CollectError::failed("an earlier scrape still waits for it")),
            Seat::Gone => {
                self.seat = Seat::Gone;
                Err(CollectError::failed(
                    "it panicked before and cannot be built again",
                ))
            }
        }
    }

    /// The collector has come back, in time or late.
    pub(super) fn back(&mut self, collector: Option<Box<dyn Collector>>) {
        self.seat = collector.map_or(Seat::Gone, Seat::Here);
    }

    /// Takes it back and says whether it succeeded.
    pub(super) fn settle(&mut self, played: Played) -> bool {
        self.back(played.collector);
        let (whole, dropped) = (matches!(played.outcome, Outcome::Written), played.dropped);
        if whole || dropped > 0 {
            let drops = dropped > 0;
            if drops && !self.dropping {
                let (collector, limit) = (self.entry.name, self.limit);
                tracing::warn!(
                    collector,
                    dropped,
                    limit,
                    "series are left out; metrics.maxSeries or metrics.maxSeriesOf allows more"
                );
            }
            self.dropping = drops;
        }
        match played.outcome {
            Outcome::Written => {
                self.works();
                true
            }
            Outcome::Failed(error) => {
                self.fails(&error);
                false
            }
        }
    }

    fn works(&mut self) {
        if self.failing.take().is_some() {
            tracing::info!(collector = self.entry.name, "collector works again");
        }
    }

    /// A failure is worth a warning when it begins or changes; that it lasts shows in the success series.
    pub(super) fn fails(&mut self, error: &CollectError) {
        let collector = self.entry.name;
        if let CollectError::NoData(reason) = error {
            tracing::debug!(collector, %reason, "no data");
            self.failing = None;
            return;
        }
        let text = chain(error);
        if self.failing.as_ref() == Some(&text) {
            tracing::debug!(collector, error = text, "collector still fails");
        } else {
            tracing::warn!(collector, error = text, "collector fails");
            self.failing = Some(text);
        }
    }
}
