//! Metrics of the certificate that a collector issues: `virtfleet_agent_certificate_*`. Absent if
//! the settings do not ask for enrolment.

use std::collections::BTreeMap;

use virtfleet_agent_core::enrolment::status::{CertificateState, EnrolmentStatus};
use virtfleet_wire::exposition::{MetricType, Page};

pub(super) fn append(page: &mut Page, status: &EnrolmentStatus, refusals: &BTreeMap<&'static str, u64>) {
    page.family(
        "virtfleet_agent_certificate_enrolled",
        "1 if the agent serves with a certificate that a collector issued, 0 if it waits for one.",
        MetricType::Gauge,
    )
    .sample(&[], f64::from(u8::from(status.is_enrolled())));
    if let CertificateState::Enrolled { dates, .. } = &status.state {
        page.family(
            "virtfleet_agent_certificate_not_before_timestamp_seconds",
            "First second of that certificate's validity, in seconds since 1970.",
            MetricType::Gauge,
        )
        .sample(&[], dates.not_before as f64);
        page.family(
            "virtfleet_agent_certificate_not_after_timestamp_seconds",
            "Last second of that certificate's validity, in seconds since 1970.",
            MetricType::Gauge,
        )
        .sample(&[], dates.not_after as f64);
    }
    let mut family = page.family(
        "virtfleet_agent_certificate_refusals_total",
        "Requests for enrolment and issued certificates that the agent refused, by reason.",
        MetricType::Counter,
    );
    for (reason, count) in refusals {
        family.sample(&[("reason", reason)], *count as f64);
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::enrolment::dates::CertificateDates;

    use super::*;

    #[test]
    fn the_dates_are_absent_without_a_certificate() {
        let text = |state| {
            let status = EnrolmentStatus {
                client_ca: String::new(),
                state,
                not_stored: None,
                refusal: None,
                discarded: None,
            };
            let mut page = Page::new();
            append(&mut page, &status, &BTreeMap::from([("other_key", 2)]));
            page.to_text()
        };
        let waiting = text(CertificateState::Waiting { since: 1 });
        assert!(
            waiting.contains("virtfleet_agent_certificate_enrolled 0\n"),
            "{waiting}"
        );
        assert!(
            !waiting.contains("not_after") && !waiting.contains("not_before"),
            "{waiting}"
        );
        let line = "virtfleet_agent_certificate_refusals_total{reason=\"other_key\"} 2\n";
        assert!(waiting.contains(line), "{waiting}");
        let enrolled = text(CertificateState::Enrolled {
            identity: String::new(),
            dates: CertificateDates {
                not_before: 1,
                not_after: 1_800_000_000,
            },
        });
        for line in [
            "virtfleet_agent_certificate_enrolled 1\n",
            "virtfleet_agent_certificate_not_before_timestamp_seconds 1\n",
            "virtfleet_agent_certificate_not_after_timestamp_seconds 1800000000\n",
        ] {
            assert!(enrolled.contains(line), "{enrolled}");
        }
    }
}
