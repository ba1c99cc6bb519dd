//! `enrolment`: whether a collector has issued the agent's certificate, one item; and its findings.
//! Absent if the settings do not ask for enrolment.

use jiff::Timestamp;
use serde_json::{Value, json};
use virtfleet_agent_core::enrolment::{
    findings::findings,
    record::{DiscardedKey, LastRefusal},
    status::{CertificateState, EnrolmentStatus},
};
use virtfleet_agent_host::Roots;
use virtfleet_wire::{
    finding::Finding,
    report::{Clock, Section, SectionStatus},
    settings::ServerTls,
};

use super::files::object;
use crate::enrolment::{Enrolment, stored_status};

/// Where the state comes from.
#[derive(Debug)]
pub(super) enum EnrolmentSource {
    /// The settings do not ask for enrolment.
    Off,
    /// This process serves with it.
    Running(Enrolment),
    /// The files that the running agent has written; `clientCA` of the settings.
    Stored(String),
}

/// Section and findings of the enrolment.
pub(super) struct CertificateReport {
    pub(super) section: Option<(&'static str, Section)>,
    pub(super) findings: Vec<Finding>,
}

impl EnrolmentSource {
    pub(super) fn of_settings(tls: &ServerTls) -> Self {
        if tls.enrolment {
            Self::Stored(tls.client_ca.clone().unwrap_or_default())
        } else {
            Self::Off
        }
    }

    pub(super) fn read(&self, roots: &Roots, clock: &Clock) -> CertificateReport {
        let now = clock.realtime_ns / 1_000_000_000;
        let status = match self {
            Self::Off => {
                return CertificateReport {
                    section: None,
                    findings: Vec::new(),
                };
            }
            Self::Running(enrolment) => Ok(Some(enrolment.status())),
            Self::Stored(client_ca) => stored_status(roots, client_ca, now),
        };
        let (section, findings) = match status {
            Ok(Some(status)) => (section(&status), findings(&status, now)),
            Ok(None) => (unknown("no agent has started with enrolment yet"), Vec::new()),
            Err(reason) => (unknown(&reason), Vec::new()),
        };
        CertificateReport {
            section: Some(("enrolment", section)),
            findings,
        }
    }
}

fn unknown(reason: &str) -> Section {
    Section {
        status: SectionStatus::Unknown,
        items: vec![json!({"state": "unknown", "reason": reason})],
        ..Section::default()
    }
}

fn section(status: &EnrolmentStatus) -> Section {
    let (state, identity, since, dates) = match &status.state {
        CertificateState::Waiting { since } => ("waiting", None, Some(*since), None),
        CertificateState::Enrolled { identity, dates } => ("enrolled", Some(identity), None, Some(*dates)),
    };
    let refusal = |refusal: &LastRefusal| json!({"at": time(refusal.at), "reason": refusal.reason});
    let discarded = |key: &DiscardedKey| json!({"at": time(key.at), "why": key.why, "before": key.before, "now": key.now});
    let item = object([
        ("state", Some(state.into())),
        ("since", since.map(time)),
        ("clientCA", Some(status.client_ca.as_str().into())),
        ("identity", identity.map(|identity| identity.as_str().into())),
        ("notBefore", dates.map(|dates| time(dates.not_before))),
        ("notAfter", dates.map(|dates| time(dates.not_after))),
        ("lastRefusal", status.refusal.as_ref().map(refusal)),
        ("discardedKey", status.discarded.as_ref().map(discarded)),
        (
            "notStored",
            status.not_stored.as_ref().map(|key| key.reason().into()),
        ),
    ]);
    Section {
        status: if status.is_enrolled() && status.not_stored.is_none() {
            SectionStatus::Ok
        } else {
            SectionStatus::Partial
        },
        items: vec![item],
        ..Section::default()
    }
}

/// A time as in RFC 3339.
fn time(seconds: u64) -> Value {
    i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
        .map_or(Value::Null, |time| time.to_string().into())
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::enrolment::dates::CertificateDates;

    use super::*;

    #[test]
    fn the_section_has_the_state_and_its_dates() {
        let mut status = EnrolmentStatus {
            client_ca: "/ca.crt".to_owned(),
            state: CertificateState::Waiting { since: 1_800_000_000 },
            not_stored: None,
            refusal: Some(LastRefusal::new(1_800_000_001, "another key")),
            discarded: None,
        };
        let waiting = section(&status);
        assert_eq!(waiting.status, SectionStatus::Partial);
        assert_eq!(
            waiting.items,
            [json!({
                "state": "waiting", "since": "2027-01-15T08:00:00Z", "clientCA": "/ca.crt",
                "lastRefusal": {"at": "2027-01-15T08:00:01Z", "reason": "another key"},
            })]
        );
        status.refusal = None;
        status.state = CertificateState::Enrolled {
            identity: "spiffe://d/vmi/a/b/c".to_owned(),
            dates: CertificateDates {
                not_before: 1_800_000_000,
                not_after: 1_800_086_400,
            },
        };
        let enrolled = section(&status);
        assert_eq!(enrolled.status, SectionStatus::Ok);
        assert_eq!(
            enrolled.items,
            [json!({
                "state": "enrolled", "identity": "spiffe://d/vmi/a/b/c", "clientCA": "/ca.crt",
                "notBefore": "2027-01-15T08:00:00Z", "notAfter": "2027-01-16T08:00:00Z",
            })]
        );
    }
}
