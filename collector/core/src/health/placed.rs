//! `Placed`: the VM has a known infra node.

use super::{evaluation::Evaluation, facts::HealthFacts, verdict::HealthCause};
use crate::view::VmState;

pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Evaluation {
    let state = facts.state.as_str();
    match (facts.host, facts.state) {
        // `Running` says how bad that is.
        (_, VmState::Stopped) => Evaluation::notice(HealthCause::Vm, "Stopped", "the VM is not started"),
        (_, VmState::Succeeded | VmState::Failed) => {
            Evaluation::notice(HealthCause::Vm, "Ended", format!("the VM has {state}"))
        }
        // `Running` says since when it starts, and what it waits for.
        (None, VmState::Starting) => {
            Evaluation::not_required("NotScheduled", "the VM is starting and not scheduled yet")
        }
        (None, VmState::Unknown) => Evaluation::unknown(
            HealthCause::Vm,
            "NoStatus",
            "the VMI has no status that names an infra node",
        )
        .next(facts.describe()),
        (None, _) => Evaluation::unknown(
            HealthCause::Vm,
            "NotScheduled",
            format!("the VM is {state} and not scheduled yet"),
        )
        .next(facts.describe()),
        (Some(host), _) if facts.infra_node.is_none() => Evaluation::unknown(
            HealthCause::Host,
            "InfraNodeUnknown",
            format!("the VM runs on {host}, which is not in the inventory"),
        )
        .next(format!("kubectl get node {host}")),
        (Some(host), _) => Evaluation::holds("Placed", format!("the VM runs on {host}")),
    }
}
