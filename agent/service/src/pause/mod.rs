//! Watches the clocks while the agent runs, and records pauses, suspends, and steps of the wall
//! clock.
//!
//! It costs nothing at rest: it samples when the agent handles a request anyway (a scrape, a
//! report, systemd's watchdog), and at most every [`MIN_SAMPLE_INTERVAL_NS`]. What cannot be
//! observed is reported as unknown (`agent_core::pause`).

mod show;

use std::collections::VecDeque;

use virtfleet_agent_core::pause::{DetectionLimit, Detector, Event, Kind, Sample};
use virtfleet_agent_host::{Reread, Roots, clock, clock_sample};

/// The RTC, below sysfs. Every user may read it.
const RTC: &str = "class/rtc/rtc0/since_epoch";
/// Minimum time between two samples, in nanoseconds. An RTC is slow: each read causes a dozen VM
/// exits.
const MIN_SAMPLE_INTERVAL_NS: u64 = 5_000_000_000;
/// Maximum number of events that are kept.
const MAX_EVENTS: usize = 16;

/// What was observed since the agent started.
#[derive(Debug)]
pub struct ClockWatch {
    rtc: Reread,
    detector: Detector,
    sampled_at_ns: Option<u64>,
    events: VecDeque<Event>,
    pauses: u64,
    pause_ns: u64,
    steps: u64,
    /// True if a pause could ever have been observed.
    sighted: bool,
}

impl ClockWatch {
    /// Reads nothing before the first sample.
    pub fn new(roots: &Roots) -> Self {
        Self {
            rtc: Reread::with_limit(roots.sys(RTC), 64),
            detector: Detector::default(),
            sampled_at_ns: None,
            events: VecDeque::new(),
            pauses: 0,
            pause_ns: 0,
            steps: 0,
            sighted: false,
        }
    }

    /// Samples the clocks, unless the last sample is recent. Never fails: without an RTC, pauses
    /// stay unknown.
    pub fn sample(&mut self) {
        let now = clock().boottime_ns;
        let just = |at: u64| now.saturating_sub(at) < MIN_SAMPLE_INTERVAL_NS;
        if !self.sampled_at_ns.is_some_and(just) {
            self.sampled_at_ns = Some(now);
            let sample = clock_sample(&mut self.rtc);
            self.take(sample);
        }
    }

    /// How long the guest was paused since the agent started, in nanoseconds, as far as it was
    /// observed.
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
                "the clocks show a pause, a suspend, or a step of the wall clock"
            );
            match event.kind {
                Kind::Pause => {
                    self.pauses += 1;
                    self.pause_ns = self.pause_ns.saturating_add(event.length_ns.unsigned_abs());
                }
                Kind::Step => self.steps += 1,
                Kind::Suspend => {}
            }
            if self.events.len() == MAX_EVENTS {
                self.events.pop_front();
            }
            self.events.push_back(event);
        }
        self.sighted |= self.detector.detection_limit() != DetectionLimit::Unknown;
    }
}

#[cfg(test)]
mod tests;
