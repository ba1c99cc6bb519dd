//! One migration of a VM as the collector has observed it: what KubeVirt says, and what the guest
//! felt.

use std::net::IpAddr;

use super::{
    clock_event::{ClockEventKind, GuestClockEvent},
    migration::{AddressFate, MigrationFelt, MigrationPhase, MigrationView},
};
use crate::{
    facts::{Migration, VmiMove},
    pull_result::UnixMs,
};

/// Time after the end of a migration, in milliseconds, in which what happens to the guest counts
/// as felt of it: an agent detects a pause when it is pulled next.
pub(super) const FELT_AFTER_MS: u64 = 180_000;
/// Difference between the clocks of KubeVirt and of the collector that is allowed for, in
/// milliseconds.
const CLOCK_TOLERANCE_MS: u64 = 5_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MigrationRecord {
    pub(super) known: Migration,
    /// When the collector saw it first.
    seen_ms: UnixMs,
    /// When the collector saw its end.
    ended_ms: Option<UnixMs>,
    /// Whether the collector has seen it begin: then it knows the addresses before.
    is_observed: bool,
    pub(super) felt: MigrationFelt,
    addresses_before: Box<[IpAddr]>,
    addresses_after: Box<[IpAddr]>,
}

impl MigrationRecord {
    /// A migration that is seen for the first time; `addresses` are those before it.
    pub(super) fn new(known: &Migration, addresses: &[IpAddr], now_ms: UnixMs) -> Self {
        let is_observed = known.in_progress();
        Self {
            known: known.clone(),
            seen_ms: now_ms,
            ended_ms: (!is_observed).then_some(now_ms),
            is_observed,
            felt: MigrationFelt::default(),
            addresses_before: if is_observed {
                addresses.into()
            } else {
                Box::default()
            },
            addresses_after: Box::default(),
        }
    }

    /// Whether `other` is a later state of the same migration.
    pub(super) fn is_same(&self, other: &Migration) -> bool {
        if let (Some(known), Some(other)) = (&self.known.uid, &other.uid) {
            return known == other;
        }
        match (&self.known.start, &other.start) {
            (Some(start), Some(other)) => start == other,
            // It had no start yet.
            (None, Some(_)) => self.known.in_progress(),
            (None, None) => {
                (&self.known.source, &self.known.target) == (&other.source, &other.target)
                    && (self.known.in_progress() || !other.in_progress())
            }
            (Some(_), None) => false,
        }
    }

    /// Takes a later state. Returns whether the migration ended with it.
    pub(super) fn update(&mut self, later: &Migration, now_ms: UnixMs) -> bool {
        let ended = self.known.in_progress() && !later.in_progress();
        self.known = later.clone();
        if ended {
            self.ended_ms = Some(now_ms);
        }
        ended
    }

    /// When it began, as far as known.
    pub(super) fn start_ms(&self) -> UnixMs {
        self.known.start_ms.unwrap_or(self.seen_ms)
    }

    /// When it ended, as far as known; none while it runs.
    pub(super) fn end_ms(&self) -> Option<UnixMs> {
        self.known.end_ms.or(self.ended_ms)
    }

    /// Whether what the guest felt at this time may come from it.
    pub(super) fn explains(&self, at_ms: UnixMs) -> bool {
        let is_before_end = |end: UnixMs| at_ms <= end.saturating_add(FELT_AFTER_MS);
        at_ms.saturating_add(CLOCK_TOLERANCE_MS) >= self.start_ms() && self.end_ms().is_none_or(is_before_end)
    }

    pub(super) fn feel(&mut self, event: &GuestClockEvent) {
        let felt = &mut self.felt;
        match event.kind {
            ClockEventKind::Pause => {
                let length = event.length_ms.unsigned_abs();
                felt.pause_ms = Some(felt.pause_ms.unwrap_or_default().saturating_add(length));
                let resolution = felt.resolution_ms.unwrap_or_default();
                felt.resolution_ms = Some(resolution.saturating_add(event.resolution_ms));
            }
            ClockEventKind::Step => {
                let step = felt.clock_step_ms.unwrap_or_default();
                felt.clock_step_ms = Some(step.saturating_add(event.length_ms));
            }
            ClockEventKind::Suspend => {}
        }
    }

    /// The agent has reported at this time.
    pub(super) fn record_report(&mut self, at_ms: UnixMs, detects_pauses: bool) {
        if self.end_ms().is_some_and(|end| at_ms >= end) && self.explains(at_ms) {
            self.felt.is_reported = true;
            self.felt.detects_pauses = detects_pauses;
        }
    }

    pub(super) fn record_addresses(&mut self, now: &[IpAddr], now_ms: UnixMs) {
        if self.end_ms().is_none() || !self.explains(now_ms) {
            return;
        }
        self.addresses_after = now.into();
        let before = &self.addresses_before;
        self.felt.address = if before.is_empty() || self.known.failed {
            AddressFate::Unknown
        } else if now.is_empty() {
            AddressFate::Lost
        } else if before.iter().all(|address| now.contains(address)) {
            AddressFate::Kept
        } else {
            AddressFate::Changed
        };
    }

    /// The migration as the API shows it.
    pub(super) fn view(&self) -> MigrationView {
        let texts = |addresses: &[IpAddr]| addresses.iter().map(ToString::to_string).collect();
        let felt = MigrationFelt {
            addresses_before: texts(&self.addresses_before),
            addresses_after: texts(&self.addresses_after),
            ..self.felt.clone()
        };
        // Nothing is known of what the guest felt of a migration before the collector's start,
        // except what its agent still reports.
        let is_known = self.is_observed || felt.pause_ms.is_some() || felt.clock_step_ms.is_some();
        MigrationView {
            start_ms: Some(self.start_ms()).filter(|_| self.is_observed || self.known.start_ms.is_some()),
            felt: is_known.then_some(felt),
            ..of_state(&self.known)
        }
    }
}

/// A migration as KubeVirt's `migrationState` shows it.
fn of_state(state: &Migration) -> MigrationView {
    let phase = if state.failed {
        MigrationPhase::Failed
    } else if state.in_progress() {
        MigrationPhase::Running
    } else {
        MigrationPhase::Succeeded
    };
    let times = state.start_ms.zip(state.end_ms);
    MigrationView {
        object: None,
        source: state.source.clone(),
        target: state.target.clone(),
        uid: state.uid.clone(),
        phase,
        mode: state.mode.clone(),
        failure_reason: state.failure_reason.clone(),
        created_ms: None,
        start_ms: state.start_ms,
        end_ms: state.end_ms,
        duration_ms: times.map(|(start, end)| end.saturating_sub(start)),
        felt: None,
    }
}

pub(super) fn of_object(object: &VmiMove) -> MigrationView {
    let view = object.state.as_deref().map(of_state);
    let view = view.unwrap_or(MigrationView {
        source: object.source.clone(),
        phase: MigrationPhase::Running,
        ..of_state(&Migration::default())
    });
    MigrationView {
        object: Some(object.name.clone()),
        uid: object.uid.clone().or_else(|| view.uid.clone()),
        phase: match object.phase.as_deref() {
            Some("Succeeded") => MigrationPhase::Succeeded,
            Some("Failed") => MigrationPhase::Failed,
            Some("Running" | "TargetReady") => MigrationPhase::Running,
            // A manifest may have no phase, and the state of a migration that has ended.
            None if view.phase != MigrationPhase::Running => view.phase,
            _ => MigrationPhase::Pending,
        },
        created_ms: object.created_ms,
        ..view
    }
}

/// Whether an object and a record are about one migration.
pub(super) fn is_of(object: &MigrationView, record: &MigrationView) -> bool {
    if let (Some(object), Some(record)) = (&object.uid, &record.uid) {
        return object == record;
    }
    match (object.start_ms, record.start_ms) {
        (Some(object), Some(record)) => object == record,
        _ => {
            object.phase == MigrationPhase::Running
                && record.phase == MigrationPhase::Running
                && (object.target.is_none() || object.target == record.target)
        }
    }
}
