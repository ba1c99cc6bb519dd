//! Holds a condition: a change is shown after it has lasted. The caller passes the time.
//!
//! ```text
//! evaluation worse than shown ─ for WORSE ──▶ shown
//! evaluation better than shown ─ for BETTER ─▶ shown
//! evaluation immediate and not better ───────▶ shown at once
//! ```
//! A change that reverts before its time is never shown. So between two changes in opposite
//! directions lies at least the time of the second one, except where a fact is immediate.

use super::{
    evaluation::{Evaluation, HealthCondition, Urgency},
    verdict::{HealthConditionStatus, HealthVerdict},
};
use crate::pull_result::UnixMs;

/// Times for which a change must last before it is shown, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldTimes {
    /// For a change to worse.
    pub worse_ms: u64,
    /// For a change to better, and between two problems that are equally severe.
    pub better_ms: u64,
}

impl HoldTimes {
    const fn seconds(worse: u64, better: u64) -> Self {
        Self {
            worse_ms: worse * 1000,
            better_ms: better * 1000,
        }
    }

    /// The times of a condition. `docs/health.md` lists them.
    pub const fn of(condition: HealthCondition) -> Self {
        match condition {
            HealthCondition::Placed | HealthCondition::Running => Self::seconds(30, 30),
            HealthCondition::HostReady => Self::seconds(30, 60),
            // More than two missed pulls at the default interval.
            HealthCondition::AgentReporting => Self::seconds(90, 30),
            HealthCondition::NodeReady => Self::seconds(60, 60),
            HealthCondition::DisksReady => Self::seconds(30, 60),
            HealthCondition::DnsReady => Self::seconds(60, 120),
            HealthCondition::TimeSynced | HealthCondition::ComputeReady => Self::seconds(120, 120),
            HealthCondition::VirtioTuned
            | HealthCondition::Migratable
            | HealthCondition::SpecInEffect
            | HealthCondition::MetricsDelivered
            | HealthCondition::LabelsInSync => Self::seconds(300, 60),
        }
    }

    /// The longest time of any condition.
    pub const MAX_MS: u64 = 300_000;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Worse,
    Better,
    /// Another problem, as severe as the shown one.
    Aside,
}

/// A change that is not shown yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PendingChange {
    direction: Direction,
    since_ms: UnixMs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldCondition {
    shown: Evaluation,
    since_ms: UnixMs,
    pending: Option<PendingChange>,
    times: HoldTimes,
}

impl HeldCondition {
    /// The first evaluation, shown at once.
    pub(super) fn new(times: HoldTimes, first: Evaluation, now_ms: UnixMs) -> Self {
        Self {
            shown: first,
            since_ms: now_ms,
            pending: None,
            times,
        }
    }

    pub(super) fn shown(&self) -> &Evaluation {
        &self.shown
    }

    /// Time of the last change of what is shown.
    pub(super) fn since_ms(&self) -> UnixMs {
        self.since_ms
    }

    /// Takes the present evaluation; without `hold` it is shown at once.
    pub(super) fn observe(&mut self, present: Evaluation, hold: bool, now_ms: UnixMs) {
        if present.is_same(&self.shown) {
            // Texts may contain values that change.
            self.shown = present;
            self.pending = None;
            return;
        }
        let direction = match present.severity.cmp(&self.shown.severity) {
            std::cmp::Ordering::Greater => Direction::Worse,
            std::cmp::Ordering::Less => Direction::Better,
            std::cmp::Ordering::Equal => Direction::Aside,
        };
        let since_ms = match self.pending {
            Some(pending) if pending.direction == direction => pending.since_ms,
            _ => now_ms,
        };
        let required_ms = if hold {
            self.required_ms(direction, &present)
        } else {
            0
        };
        if now_ms.saturating_sub(since_ms) >= required_ms {
            self.shown = present;
            self.since_ms = now_ms;
            self.pending = None;
        } else {
            self.pending = Some(PendingChange { direction, since_ms });
            let settling = Evaluation {
                severity: self.shown.severity,
                ..Evaluation::settling()
            };
            if self.shown.is_placeholder && !self.shown.is_same(&settling) {
                self.shown = settling;
                self.since_ms = now_ms;
            }
        }
    }

    fn required_ms(&self, direction: Direction, present: &Evaluation) -> u64 {
        // What was unknown or fine cannot recover: there was no problem.
        let has_problem = self.shown.severity > HealthVerdict::Unknown;
        let is_unknown = |one: &Evaluation| one.status == HealthConditionStatus::Unknown;
        match direction {
            Direction::Worse | Direction::Aside if present.urgency == Urgency::Immediate => 0,
            // Evidence is required now and was not before, which is no change of the VM.
            Direction::Worse if is_unknown(&self.shown) && is_unknown(present) => 0,
            Direction::Worse => self.times.worse_ms,
            Direction::Better | Direction::Aside if has_problem => self.times.better_ms,
            Direction::Better | Direction::Aside => 0,
        }
    }

    /// When the pending change is shown, if it lasts.
    pub(super) fn due_ms(&self) -> Option<UnixMs> {
        let pending = self.pending?;
        let required = match pending.direction {
            Direction::Worse => self.times.worse_ms,
            Direction::Better | Direction::Aside => self.times.better_ms,
        };
        Some(pending.since_ms.saturating_add(required))
    }
}
