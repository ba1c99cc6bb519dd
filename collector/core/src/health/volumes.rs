//! A VM that does not start because of a volume: which one, its phase, and the next command.
//!
//! KubeVirt says that the VM waits for a volume. What was read of its claims and DataVolumes says
//! for which one. Without that, for example because a right is missing, KubeVirt's word counts
//! alone.

use super::{
    evaluation::Evaluation,
    facts::HealthFacts,
    verdict::{HealthCause, HealthVerdict},
    volume_problem::{VolumeProblem, problem, worst},
};
use crate::{
    findings::escaped,
    reported::ReportedStatus,
    volumes::{ReadAnswer, ReadVolume, ReadVolumes, VolumeWait},
};

const STORAGE: HealthCause = HealthCause::Storage;
/// Maximum bytes of a name and of a text of KubeVirt in a message.
const MAX_NAME_BYTES: usize = 96;
const MAX_SAID_BYTES: usize = 256;
const MANIFESTS: &str = "packaging/collector/kubernetes";

/// Why the VM does not start, if it waits for a volume.
pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Option<Evaluation> {
    let wait = facts.volume_wait()?;
    let read = facts.fresh_volumes();
    let problem = worst_problem(facts);
    let evaluation = steady(|with_progress| evaluate_wait(facts, wait, problem, with_progress));
    Some(with_gap(with_lost_node(facts, evaluation), read).naming_object())
}

/// The worst problem of its volumes, as they were read lately.
fn worst_problem<'a>(facts: &HealthFacts<'a>) -> Option<VolumeProblem<'a>> {
    worst(facts.fresh_volumes()?, facts.now_ms)
}

fn evaluate_wait(
    facts: &HealthFacts<'_>,
    wait: VolumeWait<'_>,
    problem: Option<VolumeProblem<'_>>,
    with_progress: bool,
) -> Evaluation {
    let said = of_wait(facts, wait);
    let Some(problem) = problem else { return said };
    let text = problem.sentence(with_progress);
    let found = of_problem(facts, wait, problem, text.clone());
    if is_final(wait) && found.severity < said.severity {
        // What was read may be older than what KubeVirt says, or about another volume.
        let message = format!("{}; {text}", said.message);
        return Evaluation {
            message: message.into(),
            ..said
        }
        .next(problem.next(facts.key));
    }
    found
}

/// The evaluation with the progress of an import in its message. The message for tenants, which is
/// also that of GuestHealth, has none: each new number would rewrite the object.
fn steady(evaluate: impl Fn(bool) -> Evaluation) -> Evaluation {
    let (full, steady) = (evaluate(true), evaluate(false));
    if full.message == steady.message {
        return full;
    }
    full.for_tenants(steady.message.into_owned())
}

/// Whether KubeVirt or the scheduler says that the VM cannot start, and not only that it waits.
fn is_final(wait: VolumeWait<'_>) -> bool {
    match wait {
        VolumeWait::ClaimNotFound
        | VolumeWait::DataVolumeNotFound
        | VolumeWait::DataVolumeFailed
        | VolumeWait::Unschedulable(_) => true,
        VolumeWait::Provisioning | VolumeWait::Binding | VolumeWait::NotReady(_) => false,
    }
}

/// What is wrong with a volume of a VM that runs: its claim is lost, or it was hot-plugged and is
/// not ready.
pub(super) fn of_running(facts: &HealthFacts<'_>) -> Option<Evaluation> {
    if let Some(lost @ VolumeProblem::Lost(_)) = worst_problem(facts) {
        let message = format!(
            "{}; the VM cannot be started or migrated again",
            lost.sentence(false)
        );
        let found = Evaluation::degraded(STORAGE, "PvcLost", message);
        return Some(found.next(lost.next(facts.key)).naming_object());
    }
    if let Some(VolumeWait::NotReady(said)) = facts.volume_wait() {
        let message = |text: String| format!("a volume of the VM is not ready: {text}");
        let problem = worst_problem(facts);
        return Some(not_ready(facts, "DataVolumesNotReady", said, problem, message));
    }
    let stuck = facts.stuck_plugging()?;
    let name = escaped(&stuck.name, MAX_NAME_BYTES);
    let phase = match &*stuck.phase {
        "" => "without phase".to_owned(),
        phase => escaped(phase, MAX_NAME_BYTES),
    };
    let said = stuck.said.as_deref().unwrap_or("no reason is given");
    let said = escaped(said, MAX_SAID_BYTES);
    let message = |text: String| {
        format!("the hot-plugged volume {name} has been {phase} for more than 10 minutes: {text}")
    };
    // Another volume of the VM may have a problem, too, which does not explain this one.
    let problem = facts.fresh_volumes().and_then(|read| {
        let is_stuck = |one: &&ReadVolume| Some(&one.volume.claim) == stuck.claim.as_ref();
        problem(read.volumes.iter().find(is_stuck)?, facts.now_ms)
    });
    Some(not_ready(facts, "VolumeNotAttached", &said, problem, message))
}

/// A claim that was lost when it was read last, which is too long ago; none if there is none.
pub(super) fn lost_before(facts: &HealthFacts<'_>) -> Option<Evaluation> {
    let claim = facts.volumes?.lost()?;
    let message = format!(
        "the PersistentVolumeClaim {claim} of the VM was Lost when it was read last, and could not be read for 5 minutes"
    );
    let found = Evaluation::unknown(STORAGE, "PvcNotRead", message);
    let next = format!("kubectl -n {} describe pvc {claim}", facts.key.namespace);
    Some(found.next(next).naming_object())
}

/// A volume that is not ready, with what was read of it, else with what KubeVirt says.
fn not_ready(
    facts: &HealthFacts<'_>,
    reason: &'static str,
    said: &str,
    problem: Option<VolumeProblem<'_>>,
    message: impl Fn(String) -> String,
) -> Evaluation {
    let read = facts.fresh_volumes();
    let evaluation = steady(|with_progress| {
        let text = problem.map_or_else(|| said.to_owned(), |problem| problem.sentence(with_progress));
        Evaluation::degraded(STORAGE, reason, message(text))
    });
    let next = problem.map_or_else(|| facts.describe(), |problem| problem.next(facts.key));
    with_gap(evaluation.next(next), read).naming_object()
}

/// What was read of a volume, with what KubeVirt says.
fn of_problem(
    facts: &HealthFacts<'_>,
    wait: VolumeWait<'_>,
    problem: VolumeProblem<'_>,
    text: String,
) -> Evaluation {
    let critical = |reason, is_final| {
        let evaluation = Evaluation::critical(STORAGE, reason, text.clone());
        if is_final {
            evaluation.immediate()
        } else {
            evaluation
        }
    };
    let evaluation = match problem {
        VolumeProblem::Lost(_) => critical("PvcLost", true),
        VolumeProblem::Failed(..) => critical("DataVolumeError", wait == VolumeWait::DataVolumeFailed),
        VolumeProblem::QuotaExceeded(..) => critical("StorageQuotaExceeded", false),
        VolumeProblem::Terminating(_) => critical("PvcTerminating", false),
        VolumeProblem::ClaimNotFound(_) => critical("PvcNotFound", wait == VolumeWait::ClaimNotFound),
        VolumeProblem::DataVolumeNotFound(_) => {
            critical("DataVolumeNotFound", wait == VolumeWait::DataVolumeNotFound)
        }
        VolumeProblem::Paused(..) => Evaluation::degraded(STORAGE, "DataVolumePaused", text),
        VolumeProblem::Unbound(volume, _) => unbound(facts.waits_too_long_for(volume), wait, text),
        VolumeProblem::Filling(volume, _) => filling(facts.waits_too_long_for(volume), text),
    };
    evaluation.next(problem.next(facts.key))
}

/// What KubeVirt says, without knowledge of the volume.
fn of_wait(facts: &HealthFacts<'_>, wait: VolumeWait<'_>) -> Evaluation {
    let critical = |reason, message| Evaluation::critical(STORAGE, reason, message).immediate();
    let evaluation = match wait {
        VolumeWait::ClaimNotFound => {
            critical("PvcNotFound", "a PersistentVolumeClaim of the VM does not exist")
        }
        VolumeWait::DataVolumeNotFound => {
            critical("DataVolumeNotFound", "a DataVolume of the VM does not exist")
        }
        VolumeWait::DataVolumeFailed => critical("DataVolumeError", "a DataVolume of the VM has failed"),
        VolumeWait::Unschedulable(_) | VolumeWait::Binding => {
            let text = "the VM waits for a PersistentVolumeClaim, which is not bound";
            unbound(facts.waits_too_long(), wait, text.to_owned())
        }
        VolumeWait::Provisioning => filling(
            facts.waits_too_long(),
            "the VM waits for a DataVolume, which is being filled".to_owned(),
        ),
        VolumeWait::NotReady(said) => filling(
            facts.waits_too_long(),
            format!("the VM waits for a volume that is not ready: {said}"),
        ),
    };
    let evaluation = evaluation.next(facts.describe());
    if facts.is_first_read_pending() && evaluation.severity == HealthVerdict::Unknown {
        return evaluation.undecided();
    }
    evaluation
}

/// A claim that is not bound. Until the scheduler refuses the pod, that is normal for a time: the
/// claim may wait for its first consumer.
fn unbound(is_stuck: bool, wait: VolumeWait<'_>, text: String) -> Evaluation {
    if let VolumeWait::Unschedulable(said) = wait {
        let message = format!("{text}; the virt-launcher pod cannot be scheduled: {said}");
        return Evaluation::critical(STORAGE, "PvcPending", message);
    }
    if is_stuck {
        let message = format!("{text}, for more than 10 minutes");
        return Evaluation::degraded(STORAGE, "PvcPendingTooLong", message);
    }
    Evaluation::unknown(STORAGE, "PvcPending", text)
}

/// A volume that is being filled: an import or a clone takes its time.
fn filling(is_stuck: bool, text: String) -> Evaluation {
    if is_stuck {
        let message = format!("{text}, without progress for more than 10 minutes");
        return Evaluation::degraded(STORAGE, "VolumesProvisioningTooLong", message);
    }
    Evaluation::unknown(STORAGE, "VolumesProvisioning", text)
}

/// A VM whose Node is in the user cluster has served before, and does not now. The volume is the
/// cause, and the silent kubelet its symptom: with the same severity, storage decides.
fn with_lost_node(facts: &HealthFacts<'_>, evaluation: Evaluation) -> Evaluation {
    let node = facts.user_node.and_then(|node| node.conditions.status("Ready"));
    if node.is_some_and(|ready| ready != ReportedStatus::True) {
        return evaluation.at_least(HealthVerdict::Critical);
    }
    evaluation
}

/// Adds what could not be read and what to do about it. Tenants, who cannot grant rights, do not
/// get this part.
fn with_gap(evaluation: Evaluation, read: Option<&ReadVolumes>) -> Evaluation {
    let Some(gap) = read.and_then(gap) else {
        return evaluation;
    };
    let message = format!("{}; {gap}", evaluation.message);
    let for_tenants = evaluation.tenant_message.clone();
    let for_tenants = for_tenants.unwrap_or_else(|| evaluation.message.clone().into());
    Evaluation {
        message: message.into(),
        tenant_message: Some(for_tenants),
        ..evaluation
    }
}

/// The first thing that could not be read.
fn gap(read: &ReadVolumes) -> Option<String> {
    let manifest = read.manifest;
    let grant = |what| format!("the collector may not get {what}: kubectl apply -f {MANIFESTS}/{manifest}");
    let why = |what: &str, why: &str| format!("{what} cannot be read: {why}");
    let claims = read.volumes.iter().find_map(|one| match &one.claim {
        ReadAnswer::Denied => Some(grant("persistentvolumeclaims")),
        ReadAnswer::NotServed => Some(why(
            "PersistentVolumeClaims",
            "the API server does not serve them",
        )),
        ReadAnswer::Failed(text) => Some(why("PersistentVolumeClaims", text)),
        ReadAnswer::Found(_) | ReadAnswer::NotFound => None,
    });
    let filled = || {
        let mut answers = read.volumes.iter().filter_map(|one| one.data_volume.as_ref());
        answers.find_map(|answer| match answer {
            ReadAnswer::Denied => Some(grant("datavolumes.cdi.kubevirt.io")),
            ReadAnswer::NotServed => {
                let text =
                    "the infra cluster does not serve datavolumes.cdi.kubevirt.io, so CDI is not installed";
                Some(why("DataVolumes", text))
            }
            ReadAnswer::Failed(text) => Some(why("DataVolumes", text)),
            ReadAnswer::Found(_) | ReadAnswer::NotFound => None,
        })
    };
    claims.or_else(filled)
}
