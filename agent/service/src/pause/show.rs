//! The clock watch as a section of the report, a finding, and metrics.

use jiff::Timestamp;
use serde_json::json;
use virtfleet_agent_core::pause::{DetectionLimit, Event, Kind};
use virtfleet_wire::{
    exposition::Page,
    finding::{Finding, Severity},
    report::{Clock, Section, SectionStatus},
};

use super::ClockWatch;

/// How long a pause is reported as a finding, in nanoseconds: an hour.
const RECENT_NS: u64 = 3600 * 1_000_000_000;

impl ClockWatch {
    /// Section `clock`: first what can be observed, then the last events, oldest first. Unknown if
    /// nothing can be observed.
    pub fn section(&self, now: &Clock) -> Section {
        let sight = match self.detector.detection_limit() {
            DetectionLimit::Unknown => json!({"kind": "watch", "source": "none"}),
            DetectionLimit::Above(resolution) => {
                json!({"kind": "watch", "source": "rtc", "resolutionSeconds": seconds(resolution)})
            }
        };
        let event = |event: &Event| {
            let mut item = json!({
                "kind": event.kind.word(),
                "source": event.kind.source(),
                "lengthSeconds": event.length_ns as f64 / 1e9,
                "resolutionSeconds": seconds(event.resolution_ns),
                "at": at(event, now),
                "ageMs": age_ns(event, now) / 1_000_000,
            });
            if event.clock_set_too {
                item["clockSetToo"] = true.into();
            }
            item
        };
        Section {
            status: match self.detector.detection_limit() {
                DetectionLimit::Unknown => SectionStatus::Unknown,
                DetectionLimit::Above(_) => SectionStatus::Ok,
            },
            items: std::iter::once(sight)
                .chain(self.events.iter().map(event))
                .collect(),
            ..Section::default()
        }
    }

    /// The finding of the last pause, if it is recent.
    pub fn finding(&self, now: &Clock) -> Option<Finding> {
        let pause = self.events.iter().rev().find(|event| event.kind == Kind::Pause)?;
        if age_ns(pause, now) > RECENT_NS {
            return None;
        }
        let (length, resolution) = (pause.length_ns as f64 / 1e9, seconds(pause.resolution_ns));
        let message = format!(
            "the guest and its clocks were paused for {length:.0} s (± {resolution:.0} s), detected at {}",
            at(pause, now)
        );
        let finding = Finding::new(
            "guest-paused",
            Severity::Info,
            ("Clock", "rtc"),
            "Paused",
            message,
        )
        .with("lengthSeconds", format!("{length:.1}"))
        .with("resolutionSeconds", format!("{resolution:.1}"))
        .with("source", pause.kind.source())
        .remedy("check the VMI's migrations and events; in the guest: timedatectl");
        Some(if pause.clock_set_too {
            finding.with("clockSetToo", true)
        } else {
            finding
        })
    }

    /// Appends the counters. Those of pauses are absent as long as no pause could have been
    /// observed: 0 would mean that there were none.
    pub fn append_metrics(&self, page: &mut Page) {
        if self.sighted {
            page.counter(
                "virtfleet_guest_pauses_total",
                "Pauses of the guest (stopped, saved, migrated) since the agent started, by its RTC. Pauses shorter \
                 than 2 s plus 0.05 % of the time between scrapes are not detected.",
                self.pauses as f64,
            );
            page.counter(
                "virtfleet_guest_pause_seconds_total",
                "Total length of the guest's pauses since the agent started, by its RTC. Each pause is accurate to 2 s plus \
                 0.05 % of the time between scrapes.",
                seconds(self.pause_ns),
            );
        }
        page.counter(
            "virtfleet_guest_clock_steps_total",
            "Steps of the wall clock by more than 0.1 s since the agent started, by the boot clock.",
            self.steps as f64,
        );
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn age_ns(event: &Event, now: &Clock) -> u64 {
    now.boottime_ns.saturating_sub(event.boottime_ns)
}

/// Time of the event, by the current wall clock.
fn at(event: &Event, now: &Clock) -> String {
    let seconds = now.realtime_ns.saturating_sub(age_ns(event, now)) / 1_000_000_000;
    let time = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(String::new, |time| time.to_string())
}
