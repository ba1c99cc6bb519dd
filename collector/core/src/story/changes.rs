//! Sentences about what changed between two states of a VM.

use std::net::IpAddr;

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::NodeName,
};

use super::{
    clock_event::{ClockEventKind, GuestClockEvent},
    entry::{TimelineEntry, TimelineKind},
    record::MigrationRecord,
};
use crate::{
    facts::Migration,
    findings::GUEST_PREFIX,
    health::{HealthCause, HealthVerdict, HealthView},
    pull_result::UnixMs,
};

/// Findings that other entries of the timeline say better.
const SAID_OTHERWISE: [&str; 1] = ["guest/guest-paused"];

/// What decides a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownVerdict {
    pub(super) verdict: HealthVerdict,
    pub(super) cause: Option<HealthCause>,
    pub(super) reason: String,
}

impl ShownVerdict {
    pub(super) fn of(health: &HealthView) -> Self {
        Self {
            verdict: health.verdict,
            cause: health.cause,
            reason: health.reason.clone(),
        }
    }

    fn text(&self) -> String {
        match self.cause {
            Some(cause) => format!("{} ({}, {})", self.verdict.as_str(), cause.as_str(), self.reason),
            None => self.verdict.as_str().to_owned(),
        }
    }
}

/// The verdict is another one than `before`; none before: the first one that the collector knows.
/// The first one is worth an entry only if it is a problem. The text names no VMs of others.
pub(super) fn verdict(
    before: Option<&ShownVerdict>,
    health: &HealthView,
    now_ms: UnixMs,
) -> Option<TimelineEntry> {
    let now = ShownVerdict::of(health);
    let text = match before {
        Some(before) if *before == now => return None,
        Some(before) if health.verdict == HealthVerdict::Healthy => {
            format!("Healthy, was {}", before.text())
        }
        Some(before) => format!("{}, was {}: {}", now.text(), before.text(), health.tenant_text()),
        None if health.verdict <= HealthVerdict::Unknown => return None,
        None => format!(
            "{}, the first verdict since the collector started: {}",
            now.text(),
            health.tenant_text()
        ),
    };
    Some(TimelineEntry::new(now_ms, TimelineKind::Verdict, text))
}

pub(super) fn route(migration: &Migration) -> String {
    let name = |node: &Option<NodeName>| node.as_ref().map_or("?", NodeName::as_str).to_owned();
    format!("from {} to {}", name(&migration.source), name(&migration.target))
}

fn hosts(migration: Option<&Migration>) -> impl Iterator<Item = &NodeName> {
    let migration = migration.into_iter();
    migration.flat_map(|one| [&one.source, &one.target].into_iter().flatten())
}

pub(super) fn migration_begins(record: &MigrationRecord) -> TimelineEntry {
    let text = format!("a live migration {} begins", route(&record.known));
    TimelineEntry::new(record.start_ms(), TimelineKind::Migration, text).naming(hosts(Some(&record.known)))
}

pub(super) fn migration_ends(record: &MigrationRecord, now_ms: UnixMs) -> TimelineEntry {
    let known = &record.known;
    let took = known.start_ms.zip(known.end_ms);
    let took = took.map(|(start, end)| format!(" after {}", seconds(end.saturating_sub(start))));
    let mode = known.mode.as_deref().map(|mode| format!(", {mode}"));
    let text = if known.failed {
        let why = known.failure_reason.as_deref().unwrap_or("no reason is given");
        format!(
            "the live migration {} failed{}: {why}",
            route(known),
            took.unwrap_or_default()
        )
    } else {
        format!(
            "the live migration {} ended{}{}",
            route(known),
            took.unwrap_or_default(),
            mode.unwrap_or_default()
        )
    };
    TimelineEntry::new(record.end_ms().unwrap_or(now_ms), TimelineKind::Migration, text)
        .naming(hosts(Some(known)))
}

/// The clocks of the guest show something.
pub(super) fn clock(event: &GuestClockEvent, at_ms: UnixMs, migration: Option<&Migration>) -> TimelineEntry {
    let length = event.length_ms.unsigned_abs();
    let (kind, mut text) = match event.kind {
        ClockEventKind::Pause => (
            TimelineKind::Pause,
            format!(
                "the guest was paused for {} (± {})",
                seconds(length),
                seconds(event.resolution_ms)
            ),
        ),
        ClockEventKind::Suspend => (
            TimelineKind::Clock,
            format!("the guest suspended itself for {}", seconds(length)),
        ),
        ClockEventKind::Step => {
            let way = if event.length_ms < 0 { "back" } else { "forward" };
            let text = format!("the guest's wall clock was set {way} by {}", seconds(length));
            (TimelineKind::Clock, text)
        }
    };
    if event.is_clock_set {
        text.push_str(", and its wall clock was set");
    }
    if let Some(migration) = migration {
        text = format!("{text}, in the live migration {}", route(migration));
    }
    TimelineEntry::new(at_ms, kind, text).naming(hosts(migration))
}

/// The guest has another boot id.
pub(super) fn restart(at_ms: UnixMs, migration: Option<&Migration>) -> TimelineEntry {
    let text = match migration {
        Some(migration) => format!(
            "the guest has booted again, during or soon after the live migration {}",
            route(migration)
        ),
        None => "the guest has booted again: it reports another boot id".to_owned(),
    };
    TimelineEntry::new(at_ms, TimelineKind::Restart, text).naming(hosts(migration))
}

/// The VM has other addresses.
pub(super) fn addresses(
    before: &[IpAddr],
    now: &[IpAddr],
    at_ms: UnixMs,
    migration: Option<&Migration>,
) -> TimelineEntry {
    let text = |addresses: &[IpAddr]| {
        let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        texts.join(", ")
    };
    let after = migration.map(|one| format!(" after the live migration {}", route(one)));
    let after = after.unwrap_or_default();
    let text = match (before, now) {
        ([], now) => format!("the VM has the address {}{after}", text(now)),
        (before, []) => format!("the VM has lost its address {}{after}", text(before)),
        (before, now) => format!(
            "the address changed from {} to {}{after}",
            text(before),
            text(now)
        ),
    };
    TimelineEntry::new(at_ms, TimelineKind::Address, text).naming(hosts(migration))
}

/// Findings that appeared or are gone. Informational ones are left out.
pub(super) fn findings(before: &[Finding], now: &[Finding], at_ms: UnixMs) -> Vec<TimelineEntry> {
    let counts = |finding: &&Finding| {
        finding.severity > Severity::Info && !SAID_OTHERWISE.contains(&finding.id.as_str())
    };
    let has = |all: &[Finding], one: &Finding| {
        all.iter()
            .filter(counts)
            .any(|other| other.id == one.id && other.subject == one.subject)
    };
    let shown = |finding: &Finding| {
        finding
            .id
            .strip_prefix(GUEST_PREFIX)
            .unwrap_or(&finding.id)
            .to_owned()
    };
    let new = now.iter().filter(counts).filter(|one| !has(before, one));
    let new = new.map(|one| (one, format!("{}: {}", shown(one), one.message)));
    let gone = before.iter().filter(counts).filter(|one| !has(now, one));
    let gone = gone.map(|one| (one, format!("{} is gone", shown(one))));
    new.chain(gone)
        .map(|(finding, text)| TimelineEntry::new(at_ms, TimelineKind::Finding, text).about(&finding.id))
        .collect()
}

/// A duration, with one digit below ten seconds.
pub(super) fn seconds(ms: u64) -> String {
    if ms < 10_000 && !ms.is_multiple_of(1000) {
        format!("{:.1} s", ms as f64 / 1000.0)
    } else {
        format!("{} s", (ms + 500) / 1000)
    }
}
