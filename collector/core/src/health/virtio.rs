//! `VirtioTuned`: the virtio devices work, and are set up for the VM's vCPUs.

use virtfleet_wire::{finding::Severity, report::SectionStatus};

use super::{
    evaluation::Evaluation,
    facts::HealthFacts,
    guest::{no_report, worst},
    verdict::{HealthCause, HealthVerdict},
};

pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Evaluation {
    let Some(answer) = facts.fresh_answer() else {
        // `AgentReporting` says that nothing is known.
        let unknown = no_report(facts);
        return Evaluation {
            severity: HealthVerdict::Healthy,
            ..unknown
        };
    };
    let next = "in the guest: virtfleet-agent virtio";
    match worst(&answer.report.findings, "virtio-") {
        Some(found) if found.severity == Severity::Critical => {
            Evaluation::critical(HealthCause::Guest, "VirtioDeviceFailed", found.message.clone())
                .measured()
                .next(next)
        }
        // Slower than possible is no illness.
        Some(found) => Evaluation::notice(HealthCause::Guest, "NotTuned", found.message.clone())
            .measured()
            .next(next),
        None if answer.report.virtio.status == Some(SectionStatus::Ok) => {
            Evaluation::holds("VirtioTuned", "the virtio devices work and fit the vCPUs")
        }
        None => Evaluation::not_required("VirtioNotReported", "the agent could not read all virtio devices"),
    }
}
