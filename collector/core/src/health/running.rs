//! `Running`: KubeVirt runs the VM, and its guest's CPUs run.

use super::{
    agent::guest_hung,
    evaluation::{Evaluation, Text},
    facts::HealthFacts,
    verdict::{HealthCause, HealthVerdict},
    volumes,
};
use crate::{
    facts::{Phase, RunStrategy},
    findings::escaped,
    pull_result::FailureClass,
    reported::{ReportedCondition, ReportedStatus},
    view::{AgentStatus, VmState},
};

/// Maximum bytes of a phase in a message.
const MAX_PHASE_BYTES: usize = 96;
/// Message of a VM that runs. It does not name the evidence: the agent may answer a moment later.
const RUNS: &str = "the VM runs";

pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Evaluation {
    match facts.state {
        VmState::Stopped => stopped(facts),
        VmState::Starting => begins(facts),
        VmState::Running | VmState::Migrating => running(facts),
        VmState::Paused => paused(facts),
        VmState::Stopping => transition(facts, "Stopping", "StoppingTooLong", "is shutting down"),
        VmState::Succeeded => shut_down(facts),
        VmState::Failed => has_failed(facts),
        VmState::Unknown => no_status(facts),
    }
}

fn begins(facts: &HealthFacts<'_>) -> Evaluation {
    let found = failed_start(facts).unwrap_or_else(|| starting(facts));
    // That a VM without VMI does not run is known at once.
    if facts.vmi.is_none() && found.severity == HealthVerdict::Unknown {
        found.immediate()
    } else {
        found
    }
}

fn running(facts: &HealthFacts<'_>) -> Evaluation {
    if let Some(failed) = crash_loop(facts) {
        return failed;
    }
    // What is known of the guest is from before.
    if facts.is_launcher_gone() {
        let message =
            "no virt-launcher pod carries the VMI, so its guest does not run, although the VMI is Running";
        return Evaluation::critical(HealthCause::Vm, "LauncherGone", message).next(facts.describe());
    }
    let is_timeout = (facts.agent.failure).is_some_and(|one| one.class == FailureClass::Timeout);
    let is_silent = facts.agent.status == AgentStatus::Silent && is_timeout;
    if facts.guest_ping() == Some(false) && is_silent && !facts.is_host_down() {
        return guest_hung().next(facts.open_console());
    }
    if facts.is_probe_too_early() {
        let message = "the readiness probe of the VM fails; its guest may still boot";
        return Evaluation::unknown(HealthCause::Vm, "NotReadyYet", message).undecided();
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
        return Evaluation::holds("Running", RUNS);
    }
    if facts.vmi_condition("Ready", ReportedStatus::True).is_none() {
        return Evaluation::unknown(
            HealthCause::Vm,
            "ReadyUnknown",
            "the VMI is Running, and has no condition Ready that says so",
        )
        .next(facts.describe());
    }
    Evaluation::holds("Running", RUNS)
}

fn stopped(facts: &HealthFacts<'_>) -> Evaluation {
    if let Some(failed) = failed_start(facts) {
        return failed;
    }
    // That it does not run is known at once. It may be started anew at once, too.
    if facts.is_just_stopped() {
        let message = "the VM has no VMI any more, so it does not run";
        return Evaluation::unknown(HealthCause::Vm, "Stopped", message).immediate();
    }
    let is_wanted = facts.run_strategy() == Some(RunStrategy::Always);
    let message = match (is_wanted, facts.user_node.is_some()) {
        (true, _) => "the VM has no VMI, although its runStrategy is Always",
        (false, true) => "the VM is stopped, and its Node is still in the user cluster",
        (false, false) => "the VM is stopped, as its owner asked",
    };
    if facts.user_node.is_some() {
        return Evaluation::degraded(HealthCause::Vm, "Stopped", message)
            .next(start(facts))
            .immediate();
    }
    let found = Evaluation::unknown(HealthCause::Vm, "Stopped", message);
    if is_wanted {
        found.next(start(facts))
    } else {
        found
    }
}

fn no_status(facts: &HealthFacts<'_>) -> Evaluation {
    let message: Text = match facts.vmi {
        Some(vmi) if vmi.phase == Phase::Other => {
            let phase = vmi.other_phase.as_deref().unwrap_or_default();
            let phase = escaped(phase, MAX_PHASE_BYTES);
            format!("the VMI has the phase {phase}, which this version of virtfleet does not know").into()
        }
        Some(vmi) if vmi.has_status => {
            "KubeVirt does not know the state of the VMI: its phase is Unknown".into()
        }
        _ => "the VMI has no status".into(),
    };
    Evaluation::unknown(HealthCause::Vm, "NoStatus", message).next(facts.describe())
}

/// A VMI that is being deleted has ended before it is gone: its owner stops it.
fn being_deleted(facts: &HealthFacts<'_>) -> Option<Evaluation> {
    let message = "the VMI is being deleted, and its guest does not run any more";
    facts.vmi.filter(|vmi| vmi.deleting)?;
    Some(Evaluation::unknown(HealthCause::Vm, "Stopping", message).immediate())
}

fn has_failed(facts: &HealthFacts<'_>) -> Evaluation {
    let message = "the VM has failed: its virt-launcher pod or qemu ended with an error";
    being_deleted(facts).unwrap_or_else(|| {
        Evaluation::critical(HealthCause::Vm, "Failed", message)
            .next(facts.describe())
            .immediate()
    })
}

/// The guest has ended by itself, unless its VMI is being deleted.
fn shut_down(facts: &HealthFacts<'_>) -> Evaluation {
    if let Some(ending) = being_deleted(facts) {
        return ending;
    }
    let message = match facts.run_strategy() {
        Some(RunStrategy::Always) => "the guest has shut itself down; KubeVirt is to start it again",
        Some(_) if facts.cluster().is_some() => {
            "the guest has shut itself down, and KubeVirt does not start it again"
        }
        _ => "the guest has shut itself down",
    };
    if facts.cluster().is_none() {
        return Evaluation::unknown(HealthCause::Guest, "GuestShutDown", message);
    }
    Evaluation::critical(HealthCause::Guest, "GuestShutDown", message)
        .next(start(facts))
        .immediate()
}

/// A command that starts the VM, if KubeVirt accepts it; else one that shows the VM.
fn start(facts: &HealthFacts<'_>) -> String {
    let (namespace, name) = (&facts.key.namespace, &facts.key.name);
    match facts.run_strategy() {
        Some(strategy) if strategy.can_be_started() => format!("virtctl -n {namespace} start {name}"),
        // Others are started by KubeVirt alone, or by a change of the VM.
        Some(_) => format!("kubectl -n {namespace} describe vm {name}"),
        None => facts.describe(),
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

/// KubeVirt makes no VMI of a VM that is to run: its instance type, its preference or their
/// ControllerRevision does not exist, or the API server refuses the VMI. A VM that has just stopped
/// is restarted in most cases.
fn not_created(facts: &HealthFacts<'_>) -> Option<Evaluation> {
    let is_wanted = matches!(
        facts.run_strategy(),
        Some(RunStrategy::Always | RunStrategy::Once)
    );
    if !is_wanted || facts.vmi.is_some() || facts.is_just_stopped() {
        return None;
    }
    let conditions = &facts.vm?.conditions;
    let failure = conditions.with_status("Failure", ReportedStatus::True)?;
    let reason = failure.reason.as_deref().unwrap_or("Failure");
    let message = format!("KubeVirt makes no VMI of the VM: {reason}: {}", failure.text());
    Some(Evaluation::critical(HealthCause::Vm, "NotCreated", message).next(start(facts)))
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
            if let Some(failed) = not_created(facts) {
                return Some(failed);
            }
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
