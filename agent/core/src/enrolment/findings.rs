//! Findings of the enrolment.

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    dates::CertificateAge,
    record::{DiscardReason, DiscardedKey},
    status::{CertificateState, EnrolmentStatus, UnstoredKey},
};

/// Time without a certificate after which it is a finding, in seconds.
const MAX_WAITING: u64 = 600;
/// Time for which a replaced key is reported, in seconds: a day.
const DISCARD_REPORTED: u64 = 86_400;
/// Subject of all findings here.
const KIND: &str = "Certificate";
const NAME: &str = "agent";

/// Findings at `now`, in seconds since 1970.
pub fn findings(status: &EnrolmentStatus, now: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &status.state {
        CertificateState::Waiting { since } if now.saturating_sub(*since) >= MAX_WAITING => {
            findings.push(not_enrolled(status, now - since));
        }
        CertificateState::Waiting { .. } => {}
        CertificateState::Enrolled { identity, dates } => {
            let found = match dates.age(now) {
                CertificateAge::Fresh => None,
                CertificateAge::NotRenewed => Some((
                    Severity::Warning,
                    "NotRenewed",
                    format!(
                        "the agent's certificate expires in {} and was not renewed",
                        duration(dates.not_after.saturating_sub(now))
                    ),
                )),
                CertificateAge::Expired => Some((
                    Severity::Critical,
                    "Expired",
                    format!(
                        "the agent's certificate expired {} ago, so collectors reject it",
                        duration(now.saturating_sub(dates.not_after))
                    ),
                )),
            };
            findings.extend(found.map(|(severity, reason, message)| {
                Finding::new("certificate-not-renewed", severity, (KIND, NAME), reason, message)
                    .with("identity", identity)
                    .with("notAfter", dates.not_after)
                    .remedy("timedatectl; check whether the collector reaches this VM: virtfleetctl vm")
            }));
        }
    }
    let recent = |discarded: &&DiscardedKey| now.saturating_sub(discarded.at) < DISCARD_REPORTED;
    findings.extend(status.discarded.as_ref().filter(recent).map(key_replaced));
    findings.extend(status.not_stored.as_ref().map(not_stored));
    findings
}

fn not_stored(key: &UnstoredKey) -> Finding {
    let (severity, reason, message, remedy) = match key {
        UnstoredKey::InMemory(why) => (
            Severity::Warning,
            "NotStored",
            format!("the agent's key is kept in memory only: {why}"),
            "ls -ld /var/lib/virtfleet-agent; systemctl restart virtfleet-agent",
        ),
        UnstoredKey::Refused(why) => (
            Severity::Critical,
            "RefusedToEnrol",
            format!("the agent does not enrol, because its key cannot be stored: {why}"),
            "df -h /var/lib/virtfleet-agent; df -i /var/lib/virtfleet-agent; ls -l /var/lib/virtfleet-agent",
        ),
        UnstoredKey::NoSpace(why) => (
            Severity::Warning,
            "NoSpace",
            format!("the agent's key and certificate cannot be stored: {why}"),
            "df -h /var/lib/virtfleet-agent; df -i /var/lib/virtfleet-agent",
        ),
    };
    Finding::new(
        "certificate-key-not-stored",
        severity,
        (KIND, NAME),
        reason,
        message,
    )
    .remedy(remedy)
}

fn not_enrolled(status: &EnrolmentStatus, seconds: u64) -> Finding {
    let refused = status.refusal.as_ref().map_or_else(String::new, |refusal| {
        format!("; last refusal: {}", refusal.reason)
    });
    let message = format!(
        "the agent has waited {} for a collector to issue its certificate{refused}",
        duration(seconds)
    );
    Finding::new(
        "certificate-missing",
        Severity::Warning,
        (KIND, NAME),
        "NotEnrolled",
        message,
    )
    .with("clientCA", &status.client_ca)
    .remedy("virtfleet-agent doctor; on the infra cluster: virtfleetctl vm")
}

fn key_replaced(discarded: &DiscardedKey) -> Finding {
    let (reason, why) = match discarded.why {
        DiscardReason::OtherMachine => (
            "OtherMachine",
            "it was made on a machine with another SMBIOS UUID (a cloned or restored disk, or a baked image)",
        ),
        DiscardReason::OtherIdentity => ("OtherIdentity", "this VM was created again under its name"),
        DiscardReason::EarlierIncarnation => (
            "EarlierIncarnation",
            "the collector has recorded it as the key of an earlier VM of this name",
        ),
        DiscardReason::Unusable => ("Unusable", "its file could not be used"),
    };
    Finding::new(
        "certificate-key-replaced",
        Severity::Info,
        (KIND, NAME),
        reason,
        format!("the agent has discarded its key and certificate: {why}"),
    )
    .with("before", &discarded.before)
    .with("now", &discarded.now)
    .remedy("nothing to do if this VM was cloned, restored or created again")
}

/// A duration for people: its largest unit.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enrolment::{dates::CertificateDates, record::LastRefusal};

    const NOW: u64 = 1_800_000_000;

    fn waiting() -> EnrolmentStatus {
        EnrolmentStatus {
            client_ca: "/etc/virtfleet/tls/ca.crt".to_owned(),
            state: CertificateState::Waiting { since: NOW },
            not_stored: None,
            refusal: None,
            discarded: None,
        }
    }

    fn enrolled() -> EnrolmentStatus {
        EnrolmentStatus {
            state: CertificateState::Enrolled {
                identity: "spiffe://d/vmi/a/b/c".to_owned(),
                dates: CertificateDates {
                    not_before: NOW,
                    not_after: NOW + 86_400,
                },
            },
            ..waiting()
        }
    }

    fn found(status: &EnrolmentStatus, at: u64) -> Vec<(String, Severity, String)> {
        findings(status, at)
            .into_iter()
            .map(|finding| (finding.id, finding.severity, finding.reason))
            .collect()
    }

    fn one(id: &str, severity: Severity, reason: &str) -> Vec<(String, Severity, String)> {
        vec![(id.to_owned(), severity, reason.to_owned())]
    }

    #[test]
    fn waiting_long_is_a_finding_with_the_last_refusal() {
        let mut status = waiting();
        assert_eq!(found(&status, NOW + 599), []);
        assert_eq!(
            found(&status, NOW + 600),
            one("certificate-missing", Severity::Warning, "NotEnrolled")
        );
        status.refusal = Some(LastRefusal::new(NOW, "another key"));
        let message = &findings(&status, NOW + 7200)[0].message;
        assert!(
            message.contains("waited 2 h") && message.ends_with("last refusal: another key"),
            "{message}"
        );
        assert_eq!(found(&status, NOW - 10), [], "a clock that was set back");
    }

    #[test]
    fn a_missed_renewal_is_a_finding_before_the_certificate_expires() {
        let status = enrolled();
        let id = "certificate-not-renewed";
        assert_eq!(found(&status, NOW + 17 * 3600), []);
        assert_eq!(
            found(&status, NOW + 21 * 3600),
            one(id, Severity::Warning, "NotRenewed")
        );
        assert_eq!(
            found(&status, NOW + 25 * 3600),
            one(id, Severity::Critical, "Expired")
        );
    }

    #[test]
    fn a_replaced_key_is_reported_for_a_day_and_a_key_in_memory_always() {
        let mut status = enrolled();
        status.discarded = Some(DiscardedKey {
            at: NOW,
            why: DiscardReason::OtherMachine,
            before: "a".to_owned(),
            now: "b".to_owned(),
        });
        let replaced = one("certificate-key-replaced", Severity::Info, "OtherMachine");
        assert_eq!(found(&status, NOW + 3600), replaced);
        status.not_stored = Some(UnstoredKey::InMemory("permission denied".to_owned()));
        let both = found(&status, NOW + 3600);
        assert_eq!(both.len(), 2);
        assert_eq!(both[1].0, "certificate-key-not-stored");
        status.state = waiting().state;
        assert_eq!(
            found(&status, NOW + 86_400).len(),
            2,
            "waits, and is in memory only"
        );
    }

    #[test]
    fn a_key_with_which_the_agent_does_not_enrol_is_critical() {
        let why = || "no space".to_owned();
        for (key, severity, reason) in [
            (UnstoredKey::InMemory(why()), Severity::Warning, "NotStored"),
            (UnstoredKey::Refused(why()), Severity::Critical, "RefusedToEnrol"),
            (UnstoredKey::NoSpace(why()), Severity::Warning, "NoSpace"),
        ] {
            let mut status = waiting();
            status.not_stored = Some(key);
            assert_eq!(
                found(&status, NOW),
                one("certificate-key-not-stored", severity, reason)
            );
            assert!(findings(&status, NOW)[0].message.ends_with(": no space"));
        }
    }
}
