//! How collectors reach this agent: one line, and one for the join token.

use virtfleet_agent_core::push::{
    WayInUse, describe,
    record::{PushFailureReason, WayRecord},
    way_in_use,
};

use super::{CheckResult, Seen};

const WHAT: &str = "collector";
/// The collector knows why it issued nothing.
const ASK_COLLECTOR: &str = "on the infra cluster: virtfleetctl token list; virtfleetctl findings; \
    the collector's log";

pub(super) fn way(seen: &Seen) -> Vec<CheckResult> {
    match &seen.way {
        // Then another line says that no agent runs.
        None => Vec::new(),
        Some(Err(reason)) => vec![CheckResult::warn(
            WHAT,
            reason,
            "systemctl restart virtfleet-agent",
        )],
        Some(Ok(record)) => {
            let client_ca = seen.settings.config.server.tls.client_ca.as_deref();
            let expects_collectors = client_ca.is_some_and(|file| !file.is_empty());
            of(record, expects_collectors, seen.clock.boottime_ns / 1_000_000_000)
        }
    }
}

/// Without authorities of clients no collector can read the agent, and none is missed.
fn of(record: &WayRecord, expects_collectors: bool, now: u64) -> Vec<CheckResult> {
    let detail = describe(record, now);
    let mut lines = vec![match (way_in_use(record, now), &record.collector) {
        _ if record.unanswered(now).is_some() => CheckResult::warn(WHAT, detail, ASK_COLLECTOR),
        (WayInUse::Direct | WayInUse::Push | WayInUse::Waiting, _) => CheckResult::ok(WHAT, detail),
        (WayInUse::Trying | WayInUse::NotPulled, Some(collector)) => {
            let reason = record.failure.as_ref().map(|failure| failure.reason);
            CheckResult::warn(WHAT, detail, next_command(collector, reason))
        }
        (WayInUse::Trying | WayInUse::NotPulled, None) if !expects_collectors => {
            CheckResult::ok(WHAT, "none expected: server.tls.clientCA is not set")
        }
        (WayInUse::Trying | WayInUse::NotPulled, None) => {
            let next = "on the infra cluster: virtfleetctl vm; if no collector can reach this VM: set push.collector";
            CheckResult::warn(WHAT, detail, next)
        }
    }];
    lines.extend(record.token_problem.as_ref().map(|problem| {
        let file = problem.split(':').next().unwrap_or_default();
        CheckResult::warn(
            WHAT,
            format!("the join token cannot be read: {problem}"),
            format!("sudo chgrp virtfleet {file}; sudo chmod 0640 {file}; sudo ls -l {file}"),
        )
    }));
    lines
}

/// What to run after a failure of the connection to `collector`, which is `host:port`.
fn next_command(collector: &str, reason: Option<PushFailureReason>) -> String {
    let (host, port) = collector.rsplit_once(':').unwrap_or((collector, "10913"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match reason {
        Some(PushFailureReason::Resolve) => format!("getent hosts {host}; cat /etc/resolv.conf"),
        Some(PushFailureReason::Refused) => format!(
            "timeout 5 bash -c '</dev/tcp/{host}/{port}' && echo reachable; on the infra cluster: \
             virtfleet-collector doctor (line ingest.address)"
        ),
        Some(PushFailureReason::Timeout | PushFailureReason::Unreachable) => format!(
            "timeout 5 bash -c '</dev/tcp/{host}/{port}' && echo reachable; ip route; on the infra cluster: \
             kubectl get networkpolicy -A (push.yaml, push-egress.yaml)"
        ),
        // A collector is the TLS client: it sends a ClientHello at once.
        Some(PushFailureReason::Tls | PushFailureReason::Unauthorized) => format!(
            "timeout 5 bash -c 'head -c 3 </dev/tcp/{host}/{port}' | od -An -tx1 (a collector or its relay: \
             16 03 01; nothing: no collector is ready; else another service); then compare \
             server.tls.clientCA with virtfleetctl ca status"
        ),
        Some(PushFailureReason::Unused) => ASK_COLLECTOR.to_owned(),
        None => format!(
            "timeout 5 bash -c '</dev/tcp/{host}/{port}' && echo reachable; on the infra cluster: virtfleetctl vm"
        ),
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::push::record::{LastPull, PushFailure, PushState};

    use super::*;
    use crate::doctor::{CheckStatus, check, tests::healthy};

    /// The lines for a record of an agent that started 15 minutes ago.
    fn lines(change: impl Fn(&mut WayRecord, u64)) -> Vec<(CheckStatus, String)> {
        let mut seen = healthy();
        let now = seen.clock.boottime_ns / 1_000_000_000;
        let mut record = WayRecord {
            started_at: now - 900,
            after_seconds: 90,
            ..WayRecord::default()
        };
        change(&mut record, now);
        seen.settings.config.server.tls.client_ca = Some("/ca.crt".to_owned());
        seen.way = Some(Ok(record));
        let lines = check(&seen).into_iter().filter(|line| line.what == WHAT);
        lines
            .map(|line| {
                assert_eq!(line.next.is_empty(), line.status == CheckStatus::Ok, "{line:?}");
                (line.status, format!("{} → {}", line.detail, line.next))
            })
            .collect()
    }

    #[test]
    fn every_way_has_a_line_with_the_next_command() {
        let pulled = lines(|record, now| {
            record.direct = Some(LastPull {
                at: now - 9,
                peer: "10.0.0.7".to_owned(),
            });
        });
        assert_eq!(
            pulled,
            [(
                CheckStatus::Ok,
                "a collector at 10.0.0.7 pulls directly, last 9 s ago → ".to_owned()
            )]
        );
        let refused = lines(|record, now| {
            record.asked = Some(LastPull {
                at: now - 9,
                peer: "10.0.0.7".to_owned(),
            });
        });
        assert!(
            refused[0].1.ends_with(&format!(
                "a collector at 10.0.0.7 tried to enrol this agent 9 s ago, and issued no certificate → {ASK_COLLECTOR}"
            )),
            "{}",
            refused[0].1
        );
        let none = lines(|_, _| ());
        assert_eq!(none[0].0, CheckStatus::Warn);
        assert!(
            none[0].1.contains("push.collector is not set → "),
            "{}",
            none[0].1
        );
        let trying = lines(|record, now| {
            record.collector = Some("[fd00::5]:10913".to_owned());
            record.push = PushState::Waiting { next: now + 3 };
            record.token_problem = Some("/etc/virtfleet/token: permission denied".to_owned());
        });
        assert!(trying[0].1.contains("next attempt in 3 s"), "{}", trying[0].1);
        assert!(trying[0].1.contains("/dev/tcp/fd00::5/10913"), "{}", trying[0].1);
        assert!(
            trying[1].1.contains("chmod 0640 /etc/virtfleet/token;"),
            "{}",
            trying[1].1
        );
    }

    #[test]
    fn each_failure_has_its_next_command() {
        for &reason in PushFailureReason::ALL {
            let part = match reason {
                PushFailureReason::Resolve => "→ getent hosts relay.example;",
                PushFailureReason::Refused => "virtfleet-collector doctor",
                PushFailureReason::Timeout | PushFailureReason::Unreachable => "push-egress.yaml",
                PushFailureReason::Tls | PushFailureReason::Unauthorized => {
                    "head -c 3 </dev/tcp/relay.example/1'"
                }
                PushFailureReason::Unused => "virtfleetctl token list",
            };
            let found = lines(|record, now| {
                record.collector = Some("relay.example:1".to_owned());
                record.push = PushState::Waiting { next: now + 3 };
                record.failure = Some(PushFailure::new(now, reason, "the message"));
            });
            assert!(found[0].1.contains(part), "{part}: {}", found[0].1);
            assert!(found[0].1.contains("the message"), "{}", found[0].1);
        }
    }

    #[test]
    fn an_agent_without_authorities_of_clients_expects_no_collector() {
        let mut seen = healthy();
        seen.way = Some(Ok(WayRecord::default()));
        let line = check(&seen).into_iter().find(|line| line.what == WHAT).unwrap();
        assert_eq!(line.status, CheckStatus::Ok, "{line:?}");
    }

    #[test]
    fn an_unknown_state_is_a_warning_and_no_agent_has_no_line() {
        let mut seen = healthy();
        assert!(check(&seen).iter().all(|line| line.what != WHAT));
        seen.way = Some(Err("/run/virtfleet-agent/way.json: no such file".to_owned()));
        let line = check(&seen).into_iter().find(|line| line.what == WHAT).unwrap();
        assert_eq!(line.status, CheckStatus::Warn);
    }
}
