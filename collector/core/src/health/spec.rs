//! `SpecInEffect`: the VM runs as its specification asks, and its guest sees it.

use super::{evaluation::Evaluation, facts::HealthFacts, verdict::HealthCause};
use crate::{
    reported::ReportedStatus,
    spec_check::{self, SpecSummary, SpecWeight},
};

pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Evaluation {
    let restart = facts
        .vm
        .and_then(|vm| vm.conditions.with_status("RestartRequired", ReportedStatus::True));
    if let Some(restart) = restart.filter(|_| facts.vmi.is_some()) {
        let message = format!(
            "a change of the VM takes effect after a restart: {}",
            restart.text()
        );
        return Evaluation::degraded(HealthCause::Vm, "RestartRequired", message).next(format!(
            "virtctl -n {} restart {}",
            facts.key.namespace, facts.key.name
        ));
    }
    if let Some(sync) = facts.vmi_condition("Synchronized", ReportedStatus::False) {
        let message = format!("KubeVirt cannot apply the VMI's specification: {}", sync.text());
        return Evaluation::degraded(HealthCause::Vm, "NotSynchronized", message).next(facts.describe());
    }
    compared(facts)
}

/// The specification against what the guest sees.
fn compared(facts: &HealthFacts<'_>) -> Evaluation {
    let (Some(vmi), Some(answer)) = (facts.vmi, facts.fresh_answer()) else {
        return Evaluation::not_required(
            "NotCompared",
            "no agent reports what the guest sees; KubeVirt asks for no restart",
        )
        .undecided_if(facts.is_first_pull_pending());
    };
    let Some(spec) = vmi.spec.as_deref() else {
        return Evaluation::not_required("NotCompared", "the VMI has no spec.domain");
    };
    let checks = spec_check::checks(vmi, spec, &answer.report.hardware);
    match spec_check::summary(checks) {
        SpecSummary::Differs(first) => {
            let (reason, message) = (first.reason, first.sentence());
            let evaluation = match first.weight {
                SpecWeight::Matters => Evaluation::degraded(first.cause, reason, message),
                // Different from what was asked, and the VM serves as well as it can.
                SpecWeight::Notice => Evaluation::notice(first.cause, reason, message),
            };
            evaluation
                .measured()
                .next(format!("virtfleetctl vm {} --spec", facts.key))
        }
        SpecSummary::Agrees { compared, not_seen } => Evaluation::holds(
            "SpecInEffect",
            format!(
                "the guest sees what the VMI asks for: {compared} values agree, {not_seen} are not visible"
            ),
        )
        .measured(),
        SpecSummary::Incomplete => Evaluation::not_required(
            "NotCompared",
            "the VMI or the report does not say how many vCPUs and how much memory the VM has",
        ),
    }
}
