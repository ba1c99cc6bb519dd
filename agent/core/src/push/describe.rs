//! Which way is used, and why, as a sentence.

use super::record::{LastPull, PushState, WayRecord};
use crate::enrolment::findings::duration;

/// Age from which a direct pull no longer counts as the way in use, in seconds. It exceeds every
/// sensible interval, and the time by which the stored record may be late.
pub(super) const MAX_PULL_AGE: u64 = 600;

/// The way on which collectors reach this agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayInUse {
    /// A collector dials this agent.
    Direct,
    /// The agent has connected to the collector.
    Push,
    /// None: the agent tries to connect.
    Trying,
    /// None: no collector has pulled for long, and the agent does not connect.
    NotPulled,
    /// None yet: the agent waits for a collector.
    Waiting,
}

impl WayInUse {
    /// The way as in the report.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Push => "push",
            Self::Trying => "connecting",
            Self::NotPulled => "none",
            Self::Waiting => "waiting",
        }
    }
}

/// The way in use at `now`, in seconds since the guest booted.
pub fn way_in_use(record: &WayRecord, now: u64) -> WayInUse {
    match &record.push {
        PushState::Connected { since, .. } if pulled_since(record, *since) => WayInUse::Push,
        PushState::Connected { .. } | PushState::Connecting | PushState::Waiting { .. } => WayInUse::Trying,
        PushState::Idle => {
            let recent = |at: u64| now.saturating_sub(at) < MAX_PULL_AGE.max(record.after_seconds);
            match &record.direct {
                Some(pull) if recent(pull.at) => WayInUse::Direct,
                None if recent(record.started_at) => WayInUse::Waiting,
                _ => WayInUse::NotPulled,
            }
        }
    }
}

impl WayRecord {
    /// The last request to enrol this agent, if it led to no certificate. A collector that still
    /// wants to enrol it asks again within [`MAX_PULL_AGE`].
    pub fn unanswered(&self, now: u64) -> Option<&LastPull> {
        let is_pulled = matches!(way_in_use(self, now), WayInUse::Direct | WayInUse::Push);
        let is_recent = |asked: &&LastPull| now.saturating_sub(asked.at) < MAX_PULL_AGE;
        self.asked.as_ref().filter(is_recent).filter(|_| !is_pulled)
    }
}

/// Whether the collector pulled over the connection that was opened at `since`.
fn pulled_since(record: &WayRecord, since: u64) -> bool {
    record.pushed.as_ref().is_some_and(|pull| pull.at >= since)
}

/// The way in use at `now` and the reason, as a sentence without its full stop.
pub fn describe(record: &WayRecord, now: u64) -> String {
    let text = describe_way(record, now);
    match record.unanswered(now) {
        Some(asked) => format!(
            "{text}; a collector at {} tried to enrol this agent {} ago, and issued no certificate",
            asked.peer,
            duration(now.saturating_sub(asked.at))
        ),
        None => text,
    }
}

fn describe_way(record: &WayRecord, now: u64) -> String {
    let ago = |at: u64| duration(now.saturating_sub(at));
    let collector = record.collector.as_deref().unwrap_or_default();
    let last_failure = || {
        record.failure.as_ref().map_or_else(String::new, |failure| {
            format!("; {} ago: {}", ago(failure.at), failure.message)
        })
    };
    match (way_in_use(record, now), &record.push) {
        (WayInUse::Direct, _) => {
            let pull = record.direct.as_ref();
            let (at, peer) = pull.map_or((now, ""), |pull| (pull.at, &pull.peer));
            format!("a collector at {peer} pulls directly, last {} ago", ago(at))
        }
        (WayInUse::Push, PushState::Connected { since, peer }) => {
            let last = record.pushed.as_ref().map_or(now, |pull| pull.at);
            format!(
                "no collector pulls directly, so it pulls over the connection that the agent opened to {collector} \
                 ({peer}) {} ago, last {} ago",
                ago(*since),
                ago(last)
            )
        }
        (_, PushState::Connected { since, peer }) => format!(
            "no collector pulls; the agent connected to {collector} ({peer}) {} ago, and no pull came over that \
             connection yet{}",
            ago(*since),
            last_failure()
        ),
        (_, PushState::Connecting) => {
            format!("no collector pulls; connecting to {collector}{}", last_failure())
        }
        (_, PushState::Waiting { next }) => format!(
            "no collector pulls, and there is no connection to {collector}{}; next attempt in {}",
            last_failure(),
            duration(next.saturating_sub(now))
        ),
        (_, PushState::Idle) => {
            let since = match record.unpulled_since() {
                at if at > record.started_at => format!("no collector has pulled for {}", ago(at)),
                at => format!("no collector has pulled since the agent started {} ago", ago(at)),
            };
            if record.collector.is_some() {
                format!(
                    "{since}; after {} without a pull the agent connects to {collector}",
                    duration(record.after_seconds)
                )
            } else {
                format!("{since}, and push.collector is not set")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push::record::{PushFailure, PushFailureReason};

    const NOW: u64 = 100_000;

    fn record(push: PushState) -> WayRecord {
        WayRecord {
            started_at: NOW - 1000,
            collector: Some("relay.example:10913".to_owned()),
            after_seconds: 90,
            push,
            ..WayRecord::default()
        }
    }

    fn pull(ago: u64) -> LastPull {
        LastPull {
            at: NOW - ago,
            peer: "10.0.0.7".to_owned(),
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    fn every_state_has_its_way_and_its_sentence() {
        let failure = Some(PushFailure::new(
            NOW - 5,
            PushFailureReason::Refused,
            "10.0.0.9:10913 refused the connection",
        ));
        let connected = PushState::Connected {
            since: NOW - 300,
            peer: "10.0.0.9:10913".to_owned(),
        };
        for (record, way, text) in [
            (
                WayRecord {
                    direct: Some(pull(12)),
                    ..record(PushState::Idle)
                },
                WayInUse::Direct,
                "a collector at 10.0.0.7 pulls directly, last 12 s ago",
            ),
            (
                WayRecord {
                    pushed: Some(pull(20)),
                    ..record(connected.clone())
                },
                WayInUse::Push,
                "no collector pulls directly, so it pulls over the connection that the agent opened to \
                 relay.example:10913 (10.0.0.9:10913) 5 min ago, last 20 s ago",
            ),
            (
                WayRecord {
                    pushed: Some(pull(900)),
                    ..record(connected.clone())
                },
                WayInUse::Trying,
                "no collector pulls; the agent connected to relay.example:10913 (10.0.0.9:10913) 5 min ago, and no pull \
                 came over that connection yet",
            ),
            (
                WayRecord {
                    failure: failure.clone(),
                    ..record(connected)
                },
                WayInUse::Trying,
                "no collector pulls; the agent connected to relay.example:10913 (10.0.0.9:10913) 5 min ago, and no pull \
                 came over that connection yet; 5 s ago: 10.0.0.9:10913 refused the connection",
            ),
            (
                WayRecord {
                    failure,
                    ..record(PushState::Waiting { next: NOW + 7 })
                },
                WayInUse::Trying,
                "no collector pulls, and there is no connection to relay.example:10913; 5 s ago: 10.0.0.9:10913 refused \
                 the connection; next attempt in 7 s",
            ),
            (
                record(PushState::Connecting),
                WayInUse::Trying,
                "no collector pulls; connecting to relay.example:10913",
            ),
            (
                WayRecord {
                    started_at: NOW - 30,
                    ..record(PushState::Idle)
                },
                WayInUse::Waiting,
                "no collector has pulled since the agent started 30 s ago; after 90 s without a pull the agent connects \
                 to relay.example:10913",
            ),
            (
                WayRecord {
                    collector: None,
                    ..record(PushState::Idle)
                },
                WayInUse::NotPulled,
                "no collector has pulled since the agent started 16 min ago, and push.collector is not set",
            ),
            (
                WayRecord {
                    collector: None,
                    direct: Some(pull(900)),
                    ..record(PushState::Idle)
                },
                WayInUse::NotPulled,
                "no collector has pulled for 15 min, and push.collector is not set",
            ),
            (
                WayRecord {
                    collector: None,
                    asked: Some(pull(9)),
                    ..record(PushState::Idle)
                },
                WayInUse::NotPulled,
                "no collector has pulled since the agent started 16 min ago, and push.collector is not set; a collector \
                 at 10.0.0.7 tried to enrol this agent 9 s ago, and issued no certificate",
            ),
            (
                WayRecord {
                    collector: None,
                    asked: Some(pull(900)),
                    ..record(PushState::Idle)
                },
                WayInUse::NotPulled,
                "no collector has pulled since the agent started 16 min ago, and push.collector is not set",
            ),
            (
                WayRecord {
                    direct: Some(pull(12)),
                    asked: Some(pull(9)),
                    ..record(PushState::Idle)
                },
                WayInUse::Direct,
                "a collector at 10.0.0.7 pulls directly, last 12 s ago",
            ),
        ] {
            assert_eq!(way_in_use(&record, NOW), way, "{record:?}");
            assert_eq!(describe(&record, NOW), text);
        }
    }
}
