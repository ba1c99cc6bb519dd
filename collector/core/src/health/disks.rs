//! `DisksReady`: the volumes of the VM and the disks that its agent's settings declare.

use virtfleet_wire::report::SectionStatus;

use super::{
    evaluation::Evaluation,
    facts::HealthFacts,
    guest::{no_report, of_findings},
    verdict::{HealthCause, HealthConditionStatus},
    volumes,
};

pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Evaluation {
    let found = known(facts);
    if !facts.seen.is_run() || found.status != HealthConditionStatus::True {
        return found;
    }
    if let Some(lost) = volumes::lost_before(facts) {
        return lost;
    }
    if facts.may_have_older_problem() {
        return found.undecided();
    }
    found
}

fn known(facts: &HealthFacts<'_>) -> Evaluation {
    if facts.seen.is_run() {
        if let Some(found) = volumes::of_running(facts) {
            return found;
        }
    } else if facts.volume_wait().is_some() {
        // `Running` says for which one, and how bad that is.
        let message = "the VM does not run, because it waits for a volume";
        return Evaluation::unknown(HealthCause::Storage, "WaitsForVolume", message);
    }
    let Some(answer) = facts.fresh_answer() else {
        return no_report(facts);
    };
    let next = "in the guest: virtfleet-agent doctor";
    if let Some(found) = of_findings(&answer.report.findings, "disk-", HealthCause::Guest) {
        return found.next(next);
    }
    let storage = answer.report.storage;
    match storage.status {
        Some(SectionStatus::Ok) if storage.is_truncated => Evaluation::unknown(
            HealthCause::Guest,
            "DisksCut",
            "the guest declares more disks than its report has",
        ),
        Some(SectionStatus::Ok) if storage.items == 0 => {
            Evaluation::holds("NoDisksDeclared", "the agent's settings declare no disks")
        }
        Some(SectionStatus::Ok) => Evaluation::holds(
            "DisksReady",
            format!("all declared disks are ready ({})", storage.items),
        ),
        Some(SectionStatus::Partial) => Evaluation::degraded(
            HealthCause::Guest,
            "DisksNotReady",
            "not all declared disks are ready",
        )
        .next(next),
        Some(SectionStatus::Failed) => Evaluation::degraded(
            HealthCause::Guest,
            "DisksUnreadable",
            "the agent cannot read the state of the disks",
        )
        .next(next),
        Some(SectionStatus::Unknown) | None => Evaluation::unknown(
            HealthCause::Guest,
            "DisksNotReported",
            "the agent does not know the state of the disks: no reconcile run has ended since the guest started",
        )
        .next("in the guest: systemctl status virtfleet-provision"),
    }
}
