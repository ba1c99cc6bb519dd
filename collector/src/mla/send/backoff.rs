//! When a request may be sent again. Pure: time and randomness are passed in.

use std::time::Duration;

/// Delay after the first failure, before jitter.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// Longest delay between two attempts, before jitter. A receiver that is back receives its backlog
/// within this time.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// Longest `Retry-After` that is honoured. A receiver cannot stop a stream for longer.
pub const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// Exponential backoff with jitter for one receiver.
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    failures: u32,
    next: Duration,
}

impl Backoff {
    /// A receiver without failures.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of a failed attempt at `now`, which is counted from any fixed point, and returns
    /// the time of the next attempt. `after` is the receiver's `Retry-After`; `random` is in 0..1
    /// and spreads the attempts of many streams.
    ///
    /// The delay doubles with each failure, from half a second to 30 s, plus or minus a quarter. A
    /// `Retry-After` that is longer counts instead, up to [`MAX_RETRY_AFTER`], plus up to a tenth.
    pub fn failed(&mut self, now: Duration, after: Option<Duration>, random: f64) -> Duration {
        let random = if random.is_finite() {
            random.clamp(0.0, 1.0)
        } else {
            0.5
        };
        let doubled = FIRST_DELAY.saturating_mul(1 << self.failures.min(16));
        let delay = doubled.min(MAX_DELAY).mul_f64(0.75 + random / 2.0);
        let asked = after
            .unwrap_or_default()
            .min(MAX_RETRY_AFTER)
            .mul_f64(1.0 + random / 10.0);
        self.failures = self.failures.saturating_add(1);
        self.next = now.saturating_add(delay.max(asked));
        self.next
    }

    /// Takes note of an answer that ends the failures: the request was accepted, or refused for
    /// good.
    pub fn answered(&mut self) {
        *self = Self::default();
    }

    /// Lets the next attempt start at once, because requests go elsewhere from now on. It is still
    /// a retry.
    pub fn retry_at_once(&mut self) {
        self.next = Duration::ZERO;
    }

    /// Failed attempts in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// How long to wait at `now` before the next attempt.
    pub fn wait(&self, now: Duration) -> Duration {
        self.next.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDDLE: f64 = 0.5;

    fn seconds(number: f64) -> Duration {
        Duration::from_secs_f64(number)
    }

    #[test]
    fn the_delay_doubles_up_to_a_bound_and_starts_again_after_an_answer() {
        let mut backoff = Backoff::new();
        assert_eq!(backoff.wait(Duration::ZERO), Duration::ZERO);
        let mut now = seconds(100.0);
        let mut delays = Vec::new();
        for _ in 0..9 {
            let next = backoff.failed(now, None, MIDDLE);
            assert_eq!(backoff.wait(now), next.checked_sub(now).unwrap());
            delays.push(next.checked_sub(now).unwrap().as_secs_f64());
            now = next;
        }
        assert_eq!(delays, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]);
        assert_eq!((backoff.failures(), backoff.wait(now)), (9, Duration::ZERO));
        backoff.failed(now, None, MIDDLE);
        backoff.retry_at_once();
        assert_eq!((backoff.failures(), backoff.wait(now)), (10, Duration::ZERO));
        backoff.answered();
        assert_eq!(backoff.failures(), 0);
        assert_eq!(
            backoff.failed(now, None, MIDDLE).checked_sub(now).unwrap(),
            seconds(0.5)
        );
        for _ in 0..100 {
            backoff.failed(now, None, MIDDLE);
        }
        assert_eq!(backoff.wait(now), MAX_DELAY, "no overflow");
    }

    #[test]
    fn retry_after_is_honoured_within_its_bound() {
        let now = seconds(1.0);
        for (after, expected) in [(0.0, 0.5), (0.1, 0.5), (60.0, 63.0), (300.0, 315.0), (1e9, 315.0)] {
            let mut backoff = Backoff::new();
            let next = backoff.failed(now, Some(seconds(after)), MIDDLE);
            assert_eq!(next.checked_sub(now).unwrap(), seconds(expected), "{after}");
        }
        let mut backoff = Backoff::new();
        let next = backoff.failed(now, Some(Duration::MAX), 1.0);
        assert_eq!(next.checked_sub(now).unwrap(), seconds(330.0));
    }

    #[test]
    fn jitter_stays_within_a_quarter_and_bad_randomness_is_harmless() {
        for random in [0.0, 0.25, 1.0, -5.0, 7.0, f64::NAN, f64::INFINITY] {
            let mut backoff = Backoff::new();
            let delay = backoff.failed(Duration::ZERO, None, random);
            assert!(
                (seconds(0.375)..=seconds(0.625)).contains(&delay),
                "{random}: {delay:?}"
            );
        }
        let delay = |random| Backoff::new().failed(Duration::ZERO, None, random);
        assert_ne!(delay(0.1), delay(0.9));
    }
}
