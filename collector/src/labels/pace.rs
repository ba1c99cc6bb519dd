//! How fast one user cluster is asked: a bucket of tokens, and what to do while it does not answer. Pure.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// A bucket that holds one second's tokens and is full at first.
#[derive(Debug)]
pub(crate) struct Bucket {
    each: Duration,
    burst: Duration,
    /// When the bucket would be full again.
    full_at: Instant,
}

impl Bucket {
    /// `per_second` tokens, at least one.
    pub(crate) fn new(per_second: u32, now: Instant) -> Self {
        Self {
            each: Duration::from_secs(1) / per_second.max(1),
            burst: Duration::from_secs(1),
            full_at: now,
        }
    }

    /// Takes a token and says from when on it may be used.
    pub(crate) fn take(&mut self, now: Instant) -> Instant {
        let taken = self.full_at.max(now) + self.each;
        self.full_at = taken;
        taken.checked_sub(self.burst).map_or(now, |at| at.max(now))
    }
}

/// Growing pauses with jitter, without end.
pub(super) fn backoff(first: Duration, most: Duration) -> ExponentialBackoff {
    let builder = ExponentialBuilder::default()
        .with_min_delay(first)
        .with_max_delay(most)
        .with_factor(2.0)
        .with_jitter()
        .without_max_times();
    builder.build()
}

/// Keeps a cluster that does not answer from being asked by everybody: after a few failures in a row only one request is
/// let through, at growing intervals, until one is answered.
#[derive(Debug)]
pub(super) struct Breaker {
    failures: u32,
    pauses: Option<ExponentialBackoff>,
    closed_until: Option<Instant>,
}

impl Breaker {
    /// Failures in a row that open it.
    pub(super) const PATIENCE: u32 = 3;
    const FIRST: Duration = Duration::from_secs(1);
    const MOST: Duration = Duration::from_secs(30);

    /// Everything passes.
    pub(super) fn new() -> Self {
        Self {
            failures: 0,
            pauses: None,
            closed_until: None,
        }
    }

    /// From when on the next request may go; how many at once is [`Breaker::lanes`].
    pub(super) fn not_before(&self) -> Option<Instant> {
        self.closed_until
    }

    /// How many requests may be on their way, of `all`.
    pub(super) fn lanes(&self, all: usize) -> usize {
        if self.failures < Self::PATIENCE { all } else { 1 }
    }

    /// The cluster answered, whatever it said.
    pub(super) fn answered(&mut self) {
        *self = Self::new();
    }

    /// The cluster did not answer, or not as a working one does.
    pub(super) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.failures < Self::PATIENCE || self.closed_until.is_some_and(|until| now < until) {
            return;
        }
        let pauses = self
            .pauses
            .get_or_insert_with(|| backoff(Self::FIRST, Self::MOST));
        self.closed_until = Some(now + pauses.next().unwrap_or(Self::MOST));
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_a_second_then_the_rate() {
        let now = Instant::now();
        let mut bucket = Bucket::new(10, now);
        let waits: Vec<_> = (0..13).map(|_| (bucket.take(now) - now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 200, 300]);
        let later = now + Duration::from_mins(1);
        let free = (0..13).filter(|_| bucket.take(later) == later).count();
        assert_eq!(free, 10, "idle time does not add up");
    }

    #[test]
    fn pauses_grow_to_their_most() {
        let pauses: Vec<_> = backoff(Duration::from_secs(1), Duration::from_secs(8))
            .take(50)
            .collect();
        assert!(pauses[0] >= Duration::from_secs(1) && pauses[0] <= Duration::from_secs(2));
        assert_eq!(pauses.len(), 50, "they do not end");
        assert!(pauses[49] >= Duration::from_secs(8) && pauses[49] <= Duration::from_secs(16));
    }

    #[test]
    fn the_silent_are_asked_by_one_at_growing_intervals() {
        let now = Instant::now();
        let mut breaker = Breaker::new();
        breaker.failed(now);
        breaker.failed(now);
        assert_eq!((breaker.lanes(8), breaker.not_before()), (8, None));
        breaker.failed(now);
        let until = breaker.not_before().unwrap();
        assert!(until > now && breaker.lanes(8) == 1);
        breaker.failed(now);
        assert_eq!(
            breaker.not_before(),
            Some(until),
            "those that were under way do not add up"
        );
        breaker.failed(until);
        assert!(breaker.not_before().unwrap() > until);
        breaker.answered();
        assert_eq!((breaker.lanes(8), breaker.not_before()), (8, None));
    }
}
