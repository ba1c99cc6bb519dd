//! `way`: how collectors reach this agent, one item; and its findings.

use jiff::Timestamp;
use serde_json::{Value, json};
use virtfleet_agent_core::push::{
    WayInUse, describe,
    findings::findings,
    record::{LastPull, PushFailure, PushState, WayRecord},
    way_in_use,
};
use virtfleet_agent_host::Roots;
use virtfleet_agent_state::WAY_RECORD;
use virtfleet_wire::{
    finding::Finding,
    report::{Clock, Section, SectionStatus},
};

use super::files::object;
use crate::push::WayTracker;

/// Where the state comes from.
#[derive(Debug)]
pub(super) enum WaySource {
    /// This process is pulled.
    Running(WayTracker),
    /// The file that the running agent has written.
    Stored,
}

/// Section and findings.
pub(super) struct WayReport {
    pub(super) section: Section,
    pub(super) findings: Vec<Finding>,
}

impl WaySource {
    pub(super) fn read(&self, roots: &Roots, clock: &Clock) -> WayReport {
        let record = match self {
            Self::Running(tracker) => Ok(tracker.record()),
            // `/run` is empty after a boot.
            Self::Stored => WAY_RECORD.read_any_boot(roots),
        };
        match record {
            Ok(record) => WayReport {
                section: section(&record, clock),
                findings: findings(&record, clock.boottime_ns / 1_000_000_000),
            },
            Err(error) => WayReport {
                section: Section {
                    status: SectionStatus::Unknown,
                    items: vec![json!({"way": "unknown", "reason": format!("{WAY_RECORD}: {error}")})],
                    ..Section::default()
                },
                findings: Vec::new(),
            },
        }
    }
}

fn section(record: &WayRecord, clock: &Clock) -> Section {
    let now = clock.boottime_ns / 1_000_000_000;
    let way = way_in_use(record, now);
    let time = |at: u64| time(at, clock);
    let pull = |pull: &LastPull| json!({"at": time(pull.at), "peer": pull.peer});
    let failure = |failure: &PushFailure| json!({"at": time(failure.at), "reason": failure.reason, "message": failure.message});
    let push = record.collector.as_ref().map(|collector| {
        let (state, since, peer, next) = match &record.push {
            PushState::Idle => ("idle", None, None, None),
            PushState::Connecting => ("connecting", None, None, None),
            PushState::Connected { since, peer } => ("connected", Some(*since), Some(peer), None),
            PushState::Waiting { next } => ("waiting", None, None, Some(*next)),
        };
        object([
            ("collector", Some(collector.as_str().into())),
            ("afterSeconds", Some(record.after_seconds.into())),
            ("state", Some(state.into())),
            ("since", since.map(time)),
            ("peer", peer.map(|peer| peer.as_str().into())),
            ("nextAttempt", next.map(time)),
            ("lastFailure", record.failure.as_ref().map(failure)),
            ("tokenProblem", record.token_problem.as_deref().map(Value::from)),
        ])
    });
    let item = object([
        ("way", Some(way.word().into())),
        ("reason", Some(describe(record, now).into())),
        ("lastDirectPull", record.direct.as_ref().map(pull)),
        ("lastPushedPull", record.pushed.as_ref().map(pull)),
        ("push", push),
    ]);
    Section {
        status: match way {
            WayInUse::Direct | WayInUse::Push => SectionStatus::Ok,
            WayInUse::Trying | WayInUse::NotPulled | WayInUse::Waiting => SectionStatus::Partial,
        },
        items: vec![item],
        ..Section::default()
    }
}

/// A time since boot as in RFC 3339, by the wall clock of now.
fn time(at: u64, clock: &Clock) -> Value {
    let seconds = |nanoseconds: u64| i64::try_from(nanoseconds / 1_000_000_000).unwrap_or_default();
    let distance = i64::try_from(at)
        .unwrap_or_default()
        .saturating_sub(seconds(clock.boottime_ns));
    let realtime = seconds(clock.realtime_ns).saturating_add(distance);
    Timestamp::from_second(realtime).map_or(Value::Null, |time| time.to_string().into())
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::push::record::PushFailureReason;

    use super::*;

    #[test]
    fn the_section_has_the_way_its_reason_and_dates() {
        let clock = Clock {
            boottime_ns: 1000 * 1_000_000_000,
            realtime_ns: 1_800_000_000 * 1_000_000_000,
            ..Clock::default()
        };
        let mut record = WayRecord {
            started_at: 10,
            collector: Some("relay.example:10913".to_owned()),
            after_seconds: 90,
            push: PushState::Waiting { next: 1004 },
            failure: Some(PushFailure::new(
                998,
                PushFailureReason::Timeout,
                "10.0.0.9:10913 does not answer",
            )),
            ..WayRecord::default()
        };
        let trying = section(&record, &clock);
        assert_eq!(trying.status, SectionStatus::Partial);
        assert_eq!(
            trying.items,
            [json!({
                "way": "connecting",
                "reason": describe(&record, 1000),
                "push": {
                    "collector": "relay.example:10913", "afterSeconds": 90, "state": "waiting",
                    "nextAttempt": "2027-01-15T08:00:04Z",
                    "lastFailure": {"at": "2027-01-15T07:59:58Z", "reason": "timeout",
                                    "message": "10.0.0.9:10913 does not answer"},
                },
            })]
        );
        record.collector = None;
        (record.push, record.failure) = (PushState::Idle, None);
        record.direct = Some(LastPull {
            at: 999,
            peer: "10.0.0.7".to_owned(),
        });
        let direct = section(&record, &clock);
        assert_eq!(direct.status, SectionStatus::Ok);
        assert_eq!(
            direct.items,
            [json!({
                "way": "direct",
                "reason": "a collector at 10.0.0.7 pulls directly, last 1 s ago",
                "lastDirectPull": {"at": "2027-01-15T07:59:59Z", "peer": "10.0.0.7"},
            })]
        );
    }
}
