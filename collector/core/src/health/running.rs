//! `Running`: KubeVirt runs the VM, and its guest's CPUs run.

use super::{
    agent::guest_hung,
    evaluation::Evaluation,
    facts::HealthFacts,
    verdict::{HealthCause, HealthVerdict},
    volumes,
};
use crate::{
    pull_result::FailureClass,
    reported::{ReportedCondition, ReportedStatus},
    view::{AgentStatus, VmState},
};

pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Evaluation {
    match facts.state {
        VmState::Stopped => stopped(facts),
        VmState::Starting => failed_start(facts).unwrap_or_else(|| starting(facts)),
        VmState::Running | VmState::Migrating => running(facts),
        VmState::Paused => paused(facts),
        VmState::Stopping => transition(facts, "Stopping", "StoppingTooLong", "is shutting down"),
        VmState::Succeeded if facts.cluster().is_some() => Evaluation::critical(
            HealthCause::Guest,
            "GuestShutDown",
            "the guest has shut itself down, and KubeVirt does not start it again",
        )
        .next(format!(
            "virtctl -n {} start {}",
            facts.key.namespace, facts.key.name
        ))
        .immediate(),
        VmState::Succeeded => Evaluation::unknown(
            HealthCause::Guest,
            "GuestShutDown",
            "the guest has shut itself down",
        ),
        VmState::Failed => Evaluation::critical(
            HealthCause::Vm,
            "Failed",
            "the VM has failed: its virt-launcher pod or qemu ended with an error",
        )
        .next(facts.describe())
        .immediate(),
        VmState::Unknown => Evaluation::unknown(
            HealthCause::Vm,
            "NoStatus",
            "the VMI has no status, or a phase that is unknown",
        )
        .next(facts.describe()),
    }
}

fn running(facts: &HealthFacts<'_>) -> Evaluation {
    if let Some(failed) = crash_loop(facts) {
        return failed;
    }
    let is_timeout = (facts.agent.failure).is_some_and(|one| one.class == FailureClass::Timeout);
    if facts.guest_ping() == Some(false) && facts.agent.status == AgentStatus::Silent && is_timeout {
        return guest_hung().next(facts.open_console());
    }
    if let Some(ready) = facts.vmi_condition("Ready", ReportedStatus::False) {
        return Evaluation::critical(
            HealthCause::Vm,
            "NotReady",
            format!("KubeVirt says that the VM is not ready: {}", ready.text()),
        )
        .next(facts.describe());
    }
    if facts.is_answering() {
        return Evaluation::holds("Running", "the VM runs, and its agent answers");
    }
    if facts.vmi_condition("Ready", ReportedStatus::True).is_none() {
        return Evaluation::unknown(
            HealthCause::Vm,
            "ReadyUnknown",
            "the VMI is Running, and has no condition Ready that says so",
        )
        .next(facts.describe());
    }
    Evaluation::holds("Running", "the VM runs, and KubeVirt says that it is ready")
}

fn stopped(facts: &HealthFacts<'_>) -> Evaluation {
    if let Some(failed) = failed_start(facts) {
        return failed;
    }
    match facts.printable_status() {
        Some("Starting" | "WaitingForReceiver") => starting(facts),
        _ if facts.user_node.is_some() => Evaluation::degraded(
            HealthCause::Vm,
            "Stopped",
            "the VM is stopped, and its Node is still in the user cluster",
        )
        .next(format!(
            "virtctl -n {} start {}",
            facts.key.namespace, facts.key.name
        )),
        _ => Evaluation::unknown(
            HealthCause::Vm,
            "Stopped",
            "the VM is stopped, as its owner asked",
        ),
    }
}

fn starting(facts: &HealthFacts<'_>) -> Evaluation {
    transition(facts, "Starting", "StartingTooLong", "is starting")
}

/// A state that should end soon.
fn transition(
    facts: &HealthFacts<'_>,
    reason: &'static str,
    too_long: &'static str,
    doing: &str,
) -> Evaluation {
    if facts.is_stuck() {
        let message = format!("the VM {doing} for more than 10 minutes");
        return Evaluation::degraded(HealthCause::Vm, too_long, message).next(facts.describe());
    }
    Evaluation::unknown(HealthCause::Vm, reason, format!("the VM {doing}"))
}

fn paused(facts: &HealthFacts<'_>) -> Evaluation {
    let condition = facts.vmi_condition("Paused", ReportedStatus::True);
    let reason = condition.and_then(|one| one.reason.as_deref());
    let text = condition.map_or("no reason is given", ReportedCondition::text);
    match reason {
        Some("PausedIOError") => Evaluation::critical(
            HealthCause::Storage,
            "PausedIOError",
            format!("qemu has paused the VM after an I/O error of a volume: {text}"),
        )
        .next(facts.describe())
        .immediate(),
        Some(reason) if reason.contains("Migration") => Evaluation::critical(
            HealthCause::Migration,
            "PausedByMigration",
            format!("a migration has paused the VM: {text}"),
        )
        .next(facts.describe()),
        _ => Evaluation::critical(
            HealthCause::Vm,
            "Paused",
            format!("the VM is paused, so its guest does not run: {text}"),
        )
        .next(format!(
            "virtctl -n {} unpause vm {}",
            facts.key.namespace, facts.key.name
        ))
        .immediate(),
    }
}

fn crash_loop(facts: &HealthFacts<'_>) -> Option<Evaluation> {
    (facts.printable_status() == Some("CrashLoopBackOff")).then(|| {
        Evaluation::critical(
            HealthCause::Vm,
            "CrashLoopBackOff",
            "the VM fails repeatedly, and KubeVirt waits before it starts the VM again",
        )
        .next(facts.describe())
        .immediate()
    })
}

/// Why the VM cannot start, or waits for a volume, as KubeVirt says.
fn failed_start(facts: &HealthFacts<'_>) -> Option<Evaluation> {
    let (cause, reason, message) = match facts.printable_status() {
        Some("CrashLoopBackOff") => return crash_loop(facts),
        _ if facts.volume_wait().is_some() => return volumes::evaluate(facts),
        Some("ErrorUnschedulable") => (
            HealthCause::Host,
            "Unschedulable",
            "no infra node has room for the VM, or none fits its placement rules",
        ),
        Some("ErrImagePull" | "ImagePullBackOff") => (
            HealthCause::Vm,
            "ImagePull",
            "an image of the VM cannot be pulled",
        ),
        _ => {
            let scheduled = facts.vmi_condition("PodScheduled", ReportedStatus::False)?;
            let message = format!("the virt-launcher pod cannot be scheduled: {}", scheduled.text());
            return Some(
                Evaluation::critical(HealthCause::Host, "Unschedulable", message).next(facts.describe()),
            );
        }
    };
    let evaluation = Evaluation::critical(cause, reason, message).next(facts.describe());
    debug_assert!(evaluation.severity == HealthVerdict::Critical);
    Some(evaluation.immediate())
}
