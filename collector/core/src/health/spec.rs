//! `SpecInEffect`: the VM runs as its specification asks.

use super::{evaluation::Evaluation, facts::HealthFacts, verdict::HealthCause};
use crate::reported::ReportedStatus;

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
    // The specification is not compared with what the guest sees, so it never holds.
    Evaluation::not_required(
        "NotCompared",
        "KubeVirt asks for no restart; the specification is not compared with what the guest sees",
    )
}
