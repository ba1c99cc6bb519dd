//! How often the collector tries to enrol one VM.

use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptLimits {
    /// Pause after the first attempt; each further attempt doubles it.
    pub first_pause: Duration,
    pub max_pause: Duration,
    /// After so much time without an attempt, the pause begins again.
    pub forget_after: Duration,
}

/// Attempts of one VM. A successful attempt counts, too: a guest that throws its certificate away
/// gets the next one later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttemptHistory {
    last: Option<Instant>,
    /// Attempts in a row.
    count: u32,
    /// No attempt before.
    until: Option<Instant>,
}

impl AttemptHistory {
    /// Time until the next attempt is allowed; zero: it is allowed now.
    pub fn pause(&self, now: Instant) -> Duration {
        self.until
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Records an attempt that begins now. `random` from 0 to 1 spreads the next attempts of many
    /// VMs: the pause becomes up to a quarter longer.
    pub fn begin(&mut self, now: Instant, limits: &AttemptLimits, random: f32) {
        let is_old = self
            .last
            .is_some_and(|last| now.saturating_duration_since(last) >= limits.forget_after);
        self.count = if is_old { 0 } else { self.count };
        let pause = limits
            .first_pause
            .saturating_mul(1_u32.checked_shl(self.count).unwrap_or(u32::MAX))
            .min(limits.max_pause);
        self.count = self.count.saturating_add(1);
        self.last = Some(now);
        self.until = Some(now + pause + pause.mul_f32(random.clamp(0.0, 1.0) / 4.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AttemptLimits = AttemptLimits {
        first_pause: Duration::from_secs(2),
        max_pause: Duration::from_mins(5),
        forget_after: Duration::from_mins(15),
    };

    #[test]
    fn pauses_double_up_to_the_maximum_and_begin_anew_after_a_quiet_time() {
        let (mut now, mut history) = (Instant::now(), AttemptHistory::default());
        assert_eq!(history.pause(now), Duration::ZERO);
        let mut pauses = Vec::new();
        for _ in 0..40 {
            history.begin(now, &LIMITS, 0.0);
            pauses.push(history.pause(now).as_secs());
            now += history.pause(now);
        }
        assert_eq!(pauses[..9], [2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert!(pauses[9..].iter().all(|pause| *pause == 300));
        now += LIMITS.forget_after;
        history.begin(now, &LIMITS, 1.0);
        assert_eq!(
            history.pause(now),
            Duration::from_millis(2500),
            "a quarter longer at most"
        );
    }
}
