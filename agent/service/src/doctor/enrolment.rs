//! The enrolment: one line for the certificate, and one per finding beside it.

use virtfleet_agent_core::enrolment::{
    dates::CertificateAge,
    findings::{duration, findings},
    status::{CertificateState, EnrolmentStatus},
};
use virtfleet_wire::finding::Severity;

use super::{CheckResult, CheckStatus, Seen};

const WHAT: &str = "enrolment";

pub(super) fn enrolment(seen: &Seen) -> Vec<CheckResult> {
    let now = seen.clock.realtime_ns / 1_000_000_000;
    match &seen.enrolment {
        None => Vec::new(),
        Some(Err(reason)) => vec![CheckResult::warn(WHAT, reason, "sudo virtfleet-agent doctor")],
        Some(Ok(None)) => {
            let detail = "no key is stored: no agent has started with enrolment yet, or it cannot write \
                          /var/lib/virtfleet-agent";
            vec![CheckResult::warn(
                WHAT,
                detail,
                "systemctl status virtfleet-agent",
            )]
        }
        Some(Ok(Some(status))) => of(status, now),
    }
}

fn of(status: &EnrolmentStatus, now: u64) -> Vec<CheckResult> {
    let mut lines = vec![certificate(status, now)];
    if let Some(refusal) = &status.refusal {
        let ago = duration(now.saturating_sub(refusal.at));
        lines.push(CheckResult::warn(
            WHAT,
            format!("refused {ago} ago: {}", refusal.reason),
            "journalctl -u virtfleet-agent",
        ));
    }
    // The certificate has its line above.
    let others = findings(status, now).into_iter();
    let others = others.filter(|finding| finding.id.starts_with("certificate-key-"));
    lines.extend(others.map(|finding| {
        let status = match finding.severity {
            Severity::Info => CheckStatus::Ok,
            Severity::Warning => CheckStatus::Warn,
            Severity::Critical => CheckStatus::Fail,
        };
        let next = if status == CheckStatus::Ok {
            String::new()
        } else {
            finding.remedy
        };
        CheckResult::new(status, WHAT, finding.message, next)
    }));
    lines
}

fn certificate(status: &EnrolmentStatus, now: u64) -> CheckResult {
    let (identity, dates) = match &status.state {
        CertificateState::Waiting { since } => {
            let detail = format!(
                "waiting for {} for a collector with a certificate of {}",
                duration(now.saturating_sub(*since)),
                status.client_ca
            );
            let next = "on the infra cluster: virtfleetctl vm; here: journalctl -u virtfleet-agent";
            return CheckResult::warn(WHAT, detail, next);
        }
        CertificateState::Enrolled { identity, dates } => (identity, *dates),
    };
    let left = duration(dates.not_after.saturating_sub(now));
    let next = "timedatectl; on the infra cluster: virtfleetctl vm";
    match dates.age(now) {
        CertificateAge::Fresh => CheckResult::ok(WHAT, format!("enrolled as {identity}; {left} left")),
        CertificateAge::NotRenewed => {
            let detail = format!("enrolled as {identity}; {left} left, and it was not renewed");
            CheckResult::warn(WHAT, detail, next)
        }
        CertificateAge::Expired => {
            let ago = duration(now.saturating_sub(dates.not_after));
            let detail = format!("the certificate of {identity} expired {ago} ago");
            CheckResult::fail(WHAT, detail, next)
        }
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::enrolment::{
        dates::CertificateDates,
        record::{DiscardReason, DiscardedKey, LastRefusal},
    };

    use super::*;
    use crate::doctor::{check, tests::healthy};

    fn lines(status: Result<Option<EnrolmentStatus>, String>, later: u64) -> Vec<(CheckStatus, String)> {
        let mut seen = healthy();
        seen.clock.realtime_ns += later * 1_000_000_000;
        seen.enrolment = Some(status);
        let lines = check(&seen).into_iter().filter(|line| line.what == WHAT);
        lines
            .map(|line| {
                assert_eq!(line.next.is_empty(), line.status == CheckStatus::Ok, "{line:?}");
                (line.status, line.detail)
            })
            .collect()
    }

    fn enrolled() -> EnrolmentStatus {
        let now = healthy().clock.realtime_ns / 1_000_000_000;
        EnrolmentStatus {
            client_ca: "/ca.crt".to_owned(),
            state: CertificateState::Enrolled {
                identity: "spiffe://d/vmi/a/b/c".to_owned(),
                dates: CertificateDates {
                    not_before: now,
                    not_after: now + 86_400,
                },
            },
            not_stored: None,
            refusal: None,
            discarded: None,
        }
    }

    #[test]
    fn the_certificate_has_a_line_in_each_state() {
        assert_eq!(
            check(&healthy()).iter().filter(|line| line.what == WHAT).count(),
            0
        );
        let status = enrolled();
        for (later, expected, text) in [
            (0, CheckStatus::Ok, "enrolled as spiffe://d/vmi/a/b/c; 24 h left"),
            (
                22 * 3600,
                CheckStatus::Warn,
                "enrolled as spiffe://d/vmi/a/b/c; 2 h left, and it was not renewed",
            ),
            (
                48 * 3600,
                CheckStatus::Fail,
                "the certificate of spiffe://d/vmi/a/b/c expired 24 h ago",
            ),
        ] {
            assert_eq!(
                lines(Ok(Some(status.clone())), later),
                [(expected, text.to_owned())]
            );
        }
        assert_eq!(lines(Ok(None), 0)[0].0, CheckStatus::Warn);
        assert_eq!(
            lines(Err("permission denied".to_owned()), 0),
            [(CheckStatus::Warn, "permission denied".to_owned())]
        );
    }

    #[test]
    fn a_refusal_and_a_replaced_key_have_their_lines() {
        let mut status = enrolled();
        let now = healthy().clock.realtime_ns / 1_000_000_000;
        status.state = CertificateState::Waiting { since: now - 300 };
        status.refusal = Some(LastRefusal::new(now - 60, "it is for another key"));
        status.discarded = Some(DiscardedKey {
            at: now - 300,
            why: DiscardReason::OtherMachine,
            before: "a".to_owned(),
            now: "b".to_owned(),
        });
        let lines = lines(Ok(Some(status)), 0);
        assert_eq!(
            lines[0],
            (
                CheckStatus::Warn,
                "waiting for 5 min for a collector with a certificate of /ca.crt".to_owned()
            )
        );
        assert_eq!(lines[1].1, "refused 60 s ago: it is for another key");
        assert_eq!(lines[2].0, CheckStatus::Ok);
        assert!(lines[2].1.contains("another SMBIOS UUID"), "{lines:?}");
    }
}
