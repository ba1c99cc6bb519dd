//! Rate limit and circuit breaker for requests to one user cluster. Pure: the caller passes the
//! time.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// Token bucket that holds the tokens of one second and starts full.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    each: Duration,
    burst: Duration,
    /// When the bucket will be full again.
    full_at: Instant,
}

impl TokenBucket {
    /// A bucket with `per_second` tokens per second, at least one.
    pub(crate) fn new(per_second: u32, now: Instant) -> Self {
        Self {
            each: Duration::from_secs(1) / per_second.max(1),
            burst: Duration::from_secs(1),
            full_at: now,
        }
    }

    /// Takes a token; returns from when on it may be used.
    pub(crate) fn take(&mut self, now: Instant) -> Instant {
        let taken = self.full_at.max(now) + self.each;
        self.full_at = taken;
        taken.checked_sub(self.burst).map_or(now, |at| at.max(now))
    }
}

/// Endless pauses with jitter that double from `min` to `max`.
pub(super) fn backoff(min: Duration, max: Duration) -> ExponentialBackoff {
    let builder = ExponentialBuilder::default()
        .with_min_delay(min)
        .with_max_delay(max)
        .with_factor(2.0)
        .with_jitter()
        .without_max_times();
    builder.build()
}

/// Circuit breaker: after [`FAILURE_THRESHOLD`](Self::FAILURE_THRESHOLD) consecutive failures it
/// lets one request through at a time, at growing intervals, until the cluster answers.
#[derive(Debug)]
pub(super) struct CircuitBreaker {
    failures: u32,
    pauses: Option<ExponentialBackoff>,
    paused_until: Option<Instant>,
}

impl CircuitBreaker {
    /// Consecutive failures that open the circuit.
    pub(super) const FAILURE_THRESHOLD: u32 = 3;
    const MIN_PAUSE: Duration = Duration::from_secs(1);
    const MAX_PAUSE: Duration = Duration::from_secs(30);

    /// A closed circuit: every request passes.
    pub(super) fn new() -> Self {
        Self {
            failures: 0,
            pauses: None,
            paused_until: None,
        }
    }

    /// From when on the next request may be sent; [`Self::max_parallel`] limits how many.
    pub(super) fn not_before(&self) -> Option<Instant> {
        self.paused_until
    }

    pub(super) fn is_open(&self) -> bool {
        self.failures >= Self::FAILURE_THRESHOLD
    }

    /// Maximum concurrent requests, given that `all` are allowed while the circuit is closed.
    pub(super) fn max_parallel(&self, all: usize) -> usize {
        if self.is_open() { 1 } else { all }
    }

    /// Records an answer, also one with an error status: closes the circuit.
    pub(super) fn answered(&mut self) {
        *self = Self::new();
    }

    /// Records a failure: the cluster did not answer, or as a broken one does.
    pub(super) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.failures < Self::FAILURE_THRESHOLD || self.paused_until.is_some_and(|until| now < until) {
            return;
        }
        let pauses = self
            .pauses
            .get_or_insert_with(|| backoff(Self::MIN_PAUSE, Self::MAX_PAUSE));
        self.paused_until = Some(now + pauses.next().unwrap_or(Self::MAX_PAUSE));
    }
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_allows_a_burst_of_one_second() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(10, now);
        let waits: Vec<_> = (0..13).map(|_| (bucket.take(now) - now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 200, 300]);
        let later = now + Duration::from_mins(1);
        let free = (0..13).filter(|_| bucket.take(later) == later).count();
        assert_eq!(free, 10, "idle time does not accumulate tokens");
    }

    #[test]
    fn pauses_grow_to_the_maximum() {
        let pauses: Vec<_> = backoff(Duration::from_secs(1), Duration::from_secs(8))
            .take(50)
            .collect();
        assert!(pauses[0] >= Duration::from_secs(1) && pauses[0] <= Duration::from_secs(2));
        assert_eq!(pauses.len(), 50, "endless");
        assert!(pauses[49] >= Duration::from_secs(8) && pauses[49] <= Duration::from_secs(16));
    }

    #[test]
    fn open_circuit_allows_one_request_at_growing_intervals() {
        let now = Instant::now();
        let mut breaker = CircuitBreaker::new();
        breaker.failed(now);
        breaker.failed(now);
        assert_eq!((breaker.max_parallel(8), breaker.not_before()), (8, None));
        breaker.failed(now);
        let until = breaker.not_before().unwrap();
        assert!(until > now && breaker.max_parallel(8) == 1);
        breaker.failed(now);
        assert_eq!(
            breaker.not_before(),
            Some(until),
            "failures of requests in flight do not extend the pause"
        );
        breaker.failed(until);
        assert!(breaker.not_before().unwrap() > until);
        breaker.answered();
        assert_eq!((breaker.max_parallel(8), breaker.not_before()), (8, None));
    }
}
