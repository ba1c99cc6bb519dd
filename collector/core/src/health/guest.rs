//! What conditions about the guest have in common: its findings, and why there is no report.

use virtfleet_wire::finding::{Finding, Severity};

use super::{evaluation::Evaluation, facts::HealthFacts, verdict::HealthCause};
use crate::findings::GUEST_PREFIX;

/// The most severe of the guest's findings of warning or critical severity with this prefix.
pub(super) fn worst<'a>(findings: &'a [Finding], prefix: &str) -> Option<&'a Finding> {
    let of_guest = |finding: &&Finding| {
        let id = finding.id.strip_prefix(GUEST_PREFIX);
        id.is_some_and(|id| id.starts_with(prefix)) && finding.severity > Severity::Info
    };
    // The first one of equally severe findings, so that the order of the report decides.
    findings.iter().filter(of_guest).reduce(|worst, finding| {
        if finding.severity > worst.severity {
            finding
        } else {
            worst
        }
    })
}

/// The evaluation of the worst finding with this prefix.
pub(super) fn of_findings(findings: &[Finding], prefix: &str, cause: HealthCause) -> Option<Evaluation> {
    let found = worst(findings, prefix)?;
    let (is_critical, message) = (found.severity == Severity::Critical, found.message.clone());
    let reason = reason_of(prefix, is_critical);
    let evaluation = if is_critical {
        Evaluation::critical(cause, reason, message)
    } else {
        Evaluation::degraded(cause, reason, message)
    };
    Some(evaluation.measured())
}

/// A fixed word: the guest's own reason could change with each report.
fn reason_of(prefix: &str, is_critical: bool) -> &'static str {
    match (prefix, is_critical) {
        ("disk-", true) => "DiskFailing",
        ("disk-", false) => "DiskWarning",
        ("dns-", true) => "DNSBroken",
        ("dns-", false) => "DNSWarning",
        (_, true) => "GuestProblem",
        (_, false) => "GuestWarning",
    }
}

/// There is no fresh report, so nothing is known of the guest. `AgentReporting` says why.
pub(super) fn no_report(facts: &HealthFacts<'_>) -> Evaluation {
    if facts.agent.answer.is_some() {
        return Evaluation::unknown(
            HealthCause::Agent,
            "ReportTooOld",
            "the agent's last report is older than 5 minutes",
        )
        .placeholder();
    }
    Evaluation::unknown(HealthCause::Agent, "NoReport", "there is no report of the agent")
        .placeholder()
        .undecided_if(facts.is_first_pull_pending())
}
