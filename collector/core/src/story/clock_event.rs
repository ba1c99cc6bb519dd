//! Pauses, suspends and clock steps that the agent has detected: the section `clock` of its report.
//! `docs/decisions/0009-pauses.md` says what they mean.

use virtfleet_wire::report::{GuestReport, SectionStatus};

/// Maximum events that are read of a report; an unmodified agent sends as many.
const MAX_CLOCK_EVENTS: usize = 16;
/// Maximum length of an event that is believed, in seconds: a year.
const MAX_LENGTH_SECONDS: f64 = 366.0 * 86_400.0;

/// What the clocks of the guest show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockEventKind {
    /// The guest did not run, and its clocks stood still.
    Pause,
    /// The guest suspended itself.
    Suspend,
    /// The wall clock was set.
    Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuestClockEvent {
    pub(crate) kind: ClockEventKind,
    /// Of a step: negative if the clock was set back.
    pub(crate) length_ms: i64,
    pub(crate) resolution_ms: u64,
    /// Time since it was detected, when the report was made.
    pub(crate) age_ms: u64,
    /// A pause after which the wall clock was set.
    pub(crate) is_clock_set: bool,
}

/// What a report says of its clocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClockEvents {
    /// Whether the agent can detect pauses: the guest has an RTC.
    pub(crate) detects_pauses: bool,
    /// The guest's boot clock when it made the report, in milliseconds.
    pub(crate) boottime_ms: u64,
    /// The last events, oldest first.
    pub(crate) events: Box<[GuestClockEvent]>,
}

impl ClockEvents {
    pub(crate) fn of(report: &GuestReport) -> Self {
        let boottime_ms = report.clock.boottime_ns / 1_000_000;
        let Some(section) = report.sections.get("clock") else {
            return Self {
                boottime_ms,
                ..Self::default()
            };
        };
        let events = section.items.iter().filter_map(event);
        Self {
            detects_pauses: section.status == SectionStatus::Ok,
            boottime_ms,
            events: events.take(MAX_CLOCK_EVENTS).collect(),
        }
    }
}

fn event(item: &serde_json::Value) -> Option<GuestClockEvent> {
    let kind = match item.get("kind")?.as_str()? {
        "pause" => ClockEventKind::Pause,
        "suspend" => ClockEventKind::Suspend,
        "step" => ClockEventKind::Step,
        _ => return None,
    };
    let seconds = item.get("lengthSeconds")?.as_f64()?;
    let resolution = item.get("resolutionSeconds").and_then(serde_json::Value::as_f64);
    Some(GuestClockEvent {
        kind,
        length_ms: milliseconds(seconds)?,
        resolution_ms: resolution
            .and_then(milliseconds)
            .unwrap_or_default()
            .unsigned_abs(),
        age_ms: item.get("ageMs")?.as_u64()?,
        is_clock_set: item.get("clockSetToo").and_then(serde_json::Value::as_bool) == Some(true),
    })
}

#[expect(clippy::cast_possible_truncation, reason = "bounded before")]
fn milliseconds(seconds: f64) -> Option<i64> {
    (seconds.abs() <= MAX_LENGTH_SECONDS).then_some((seconds * 1000.0).round() as i64)
}
