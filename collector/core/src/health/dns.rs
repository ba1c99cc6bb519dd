//! `DNSReady`: the guest resolves names.

use virtfleet_wire::report::SectionStatus;

use super::{
    evaluation::Evaluation,
    facts::HealthFacts,
    guest::{no_report, of_findings},
    verdict::HealthCause,
};

pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Evaluation {
    let Some(answer) = facts.fresh_answer() else {
        return no_report(facts);
    };
    let next = "in the guest: virtfleet-agent plan dns";
    if let Some(found) = of_findings(&answer.report.findings, "dns-", HealthCause::Guest) {
        return found.next(next);
    }
    let dns = answer.report.dns;
    match dns.status {
        Some(SectionStatus::Ok) if dns.is_off => Evaluation::not_required(
            "NotManaged",
            "the agent's settings do not manage DNS, so it is not checked",
        ),
        Some(SectionStatus::Ok) => Evaluation::holds("DNSReady", "the nameservers in use answer"),
        Some(SectionStatus::Partial) => Evaluation::degraded(
            HealthCause::Guest,
            "DNSNotVerified",
            "the guest's DNS is not as its settings ask",
        )
        .next(next),
        Some(SectionStatus::Failed) => Evaluation::degraded(
            HealthCause::Guest,
            "DNSUnreadable",
            "the agent cannot read the state of the guest's DNS",
        )
        .next(next),
        Some(SectionStatus::Unknown) | None => Evaluation::unknown(
            HealthCause::Guest,
            "DNSNotReported",
            "the agent does not know the state of DNS: no reconcile run has ended since the guest started",
        )
        .next("in the guest: virtfleet-agent doctor"),
    }
}
