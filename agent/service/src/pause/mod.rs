//! Watches the clocks while the agent runs, and keeps what happened: pauses, suspends, steps of the wall clock.
//!
//! Costs nothing at rest: it looks when the agent is asked for something anyway (a scrape, a report, systemd's watchdog), and
//! at most every [`LOOK_EVERY_NS`]. What it cannot see it calls unknown (`agent_core::pause`).

mod show;

use std::collections::VecDeque;

use virtfleet_agent_core::pause::{DetectionLimit, Detector, Event, Kind, Sample};
use virtfleet_agent_host::{Reread, Roots, clock, clock_sample};

/// The RTC, below sysfs. Everyone may read it.
const RTC: &str = "class/rtc/rtc0/since_epoch";
/// The least time between two samples, in nanoseconds. An RTC is slow: each reading leaves the guest a dozen times.
const LOOK_EVERY_NS: u64 = 5_000_000_000;
/// Events that are kept.
const MOST: usize = 16;

/// What was seen since the agent started.
#[derive(Debug)]
pub struct ClockWatch {
    rtc: Reread,
    detector: Detector,
    looked_at_ns: Option<u64>,
    events: VecDeque<Event>,
    pauses: u64,
    pause_ns: u64,
    steps: u64,
    /// Whether a pause could ever have been seen.
    sighted: bool,
}

impl ClockWatch {
    /// Nothing is read before the first look.
    pub fn new(roots: &Roots) -> Self {
        Self {
            rtc: Reread::with_limit(roots.sys(RTC), 64),
            detector: Detector::default(),
            looked_at_ns: None,
            events: VecDeque::new(),
            pauses: 0,
            pause_ns: 0,
            steps: 0,
            sighted: false,
        }
    }

    /// Looks at the clocks, unless it has just done so. Never fails: a guest without an RTC has less to tell.
    pub fn look(&mut self) {
        let now = clock().boottime_ns;
        let just = |at: u64| now.saturating_sub(at) < LOOK_EVERY_NS;
        if !self.looked_at_ns.is_some_and(just) {
            self.looked_at_ns = Some(now);
            let sample = clock_sample(&mut self.rtc);
            self.take(sample);
        }
    }

    /// How long the guest stood still since the agent started, in nanoseconds, as far as it was seen.
    pub fn paused_ns(&self) -> u64 {
        self.pause_ns
    }

    fn take(&mut self, sample: Sample) {
        for event in self.detector.observe(sample) {
            let seconds = event.length_ns as f64 / 1e9;
            let resolution = event.resolution_ns as f64 / 1e9;
            tracing::info!(
                kind = event.kind.word(),
                seconds,
                resolution,
                source = event.kind.source(),
                "the clocks tell that the guest stood still, slept, or was set another time"
            );
            match event.kind {
                Kind::Pause => {
                    self.pauses += 1;
                    self.pause_ns = self.pause_ns.saturating_add(event.length_ns.unsigned_abs());
                }
                Kind::Step => self.steps += 1,
                Kind::Suspend => {}
            }
            if self.events.len() == MOST {
                self.events.pop_front();
            }
            self.events.push_back(event);
        }
        self.sighted |= self.detector.detection_limit() != DetectionLimit::Unknown;
    }
}

#[cfg(test)]
mod tests;
