//! Findings of the way on which collectors reach this agent.

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    describe,
    record::{PushState, WayRecord},
};

/// Minimum time without a pull until it is a finding, in seconds.
const MAX_UNPULLED: u64 = 600;
/// Subject of all findings here.
const KIND: &str = "Collector";

/// Findings at `now`, in seconds since the guest booted.
pub fn findings(record: &WayRecord, now: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    let unpulled = now.saturating_sub(record.unpulled_since());
    let limit = MAX_UNPULLED.max(record.after_seconds.saturating_mul(3));
    if let Some(collector) = &record.collector
        && unpulled >= limit
    {
        let reason = match record.push {
            PushState::Connected { .. } => "NotPulled",
            _ => "NotConnected",
        };
        let mut finding = Finding::new(
            "push-not-working",
            Severity::Warning,
            (KIND, collector),
            reason,
            describe(record, now),
        )
        .with("unpulledSeconds", unpulled)
        .remedy("virtfleet-agent doctor; on the infra cluster: virtfleetctl vm");
        if let Some(failure) = &record.failure {
            finding = finding.with("lastFailure", failure.reason.word());
        }
        findings.push(finding);
    }
    findings.extend(record.token_problem.as_ref().map(|problem| {
        let message = format!("the join token cannot be read: {problem}");
        Finding::new(
            "push-token-unreadable",
            Severity::Warning,
            (KIND, "token"),
            "TokenUnreadable",
            message,
        )
        .remedy("ls -l FILE; it needs the group virtfleet and mode 0640, and at most 256 bytes")
    }));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push::record::{LastPull, PushFailure, PushFailureReason};

    const NOW: u64 = 100_000;

    fn record() -> WayRecord {
        WayRecord {
            started_at: NOW,
            collector: Some("relay.example:10913".to_owned()),
            after_seconds: 90,
            push: PushState::Waiting { next: NOW },
            failure: Some(PushFailure::new(NOW, PushFailureReason::Refused, "refused")),
            ..WayRecord::default()
        }
    }

    fn reasons(record: &WayRecord, now: u64) -> Vec<String> {
        let found = findings(record, now).into_iter();
        found
            .map(|finding| format!("{} {}", finding.id, finding.reason))
            .collect()
    }

    #[test]
    fn ten_minutes_without_a_pull_are_a_finding() {
        let mut record = record();
        assert!(reasons(&record, NOW + 599).is_empty());
        assert_eq!(reasons(&record, NOW + 600), ["push-not-working NotConnected"]);
        record.push = PushState::Connected {
            since: NOW + 1,
            peer: "10.0.0.9:10913".to_owned(),
        };
        assert_eq!(reasons(&record, NOW + 600), ["push-not-working NotPulled"]);
        record.pushed = Some(LastPull {
            at: NOW + 300,
            peer: "10.0.0.9".to_owned(),
        });
        assert!(reasons(&record, NOW + 600).is_empty());
        record.pushed = None;
        record.after_seconds = 600;
        assert!(reasons(&record, NOW + 600).is_empty(), "a later start of push");
        record.collector = None;
        assert!(reasons(&record, NOW + 100_000).is_empty(), "push is off");
    }

    #[test]
    fn an_unreadable_token_is_a_finding() {
        let record = WayRecord {
            token_problem: Some("/token: permission denied".to_owned()),
            ..WayRecord::default()
        };
        assert_eq!(reasons(&record, 0), ["push-token-unreadable TokenUnreadable"]);
    }
}
