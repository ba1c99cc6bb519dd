//! Rate of a stream: an average that forgets exponentially, from counters at irregular times.

use std::time::Duration;

use virtfleet_collector_core::{mla::status::QueueStatusView, pull_result::UnixMs};

/// Time constant of the average: what was sent so long ago counts 1/e.
const TIME_CONSTANT: Duration = Duration::from_mins(1);

/// Rates of the samples and bytes that a stream sends.
#[derive(Debug)]
pub(super) struct SendRate {
    at: UnixMs,
    samples: Average,
    bytes: Average,
}

#[derive(Debug, Default)]
struct Average {
    counter: u64,
    per_second: f64,
    /// Share of the time constant that has been observed: corrects the first values.
    weight: f64,
}

impl Average {
    fn update(&mut self, counter: u64, seconds: f64) {
        let kept = (-seconds / TIME_CONSTANT.as_secs_f64()).exp();
        // A smaller counter: the stream was started again.
        let sent = counter.checked_sub(self.counter).unwrap_or(counter);
        let rate = sent as f64 / seconds;
        self.per_second = self.per_second * kept + rate * (1.0 - kept);
        self.weight = self.weight * kept + (1.0 - kept);
        self.counter = counter;
    }

    /// Per second, rounded to tenths.
    fn value(&self) -> f64 {
        if self.weight <= 0.0 {
            return 0.0;
        }
        (self.per_second / self.weight * 10.0).round() / 10.0
    }
}

impl SendRate {
    pub(super) fn new(samples: u64, bytes: u64, now: UnixMs) -> Self {
        let start = |counter| Average {
            counter,
            ..Average::default()
        };
        Self {
            at: now,
            samples: start(samples),
            bytes: start(bytes),
        }
    }

    /// Counters at `now`; a time that does not advance is ignored until it does.
    pub(super) fn update(&mut self, samples: u64, bytes: u64, now: UnixMs) {
        let Some(elapsed) = now.checked_sub(self.at).filter(|elapsed| *elapsed > 0) else {
            // The clock was set back: the interval is unknown.
            if now < self.at {
                *self = Self::new(samples, bytes, now);
            }
            return;
        };
        let seconds = Duration::from_millis(elapsed).as_secs_f64();
        self.samples.update(samples, seconds);
        self.bytes.update(bytes, seconds);
        self.at = now;
    }

    pub(super) fn write_to(&self, view: &mut QueueStatusView) {
        view.rate_samples_per_s = self.samples.value();
        view.rate_bytes_per_s = self.bytes.value();
    }
}
