//! What is wrong with a volume of a VM, from its claim and its DataVolume as they were read.

use virtfleet_wire::ids::VmKey;

use super::facts::MAX_VOLUMES_AGE_MS;
use crate::{
    pull_result::UnixMs,
    reported::{ReportedCondition, ReportedStatus},
    volumes::{ClaimState, DataVolumeState, ReadAnswer, ReadVolume, ReadVolumes},
};

/// Reasons of the condition `Running` of a DataVolume that has stopped with an error
/// (`HasDataVolumeErrors` of KubeVirt's `pkg/storage/types/dv.go`).
const ERROR_REASONS: [&str; 2] = ["Error", "ImagePullFailed"];
/// Reason of the condition `Bound` of a DataVolume whose claim exceeds a quota.
const QUOTA_REASON: &str = "ErrExceededQuota";
/// Phases of a DataVolume that waits for the virt-launcher pod, or another first consumer.
const CONSUMER_PHASES: [&str; 2] = ["WaitForFirstConsumer", "PendingPopulation"];

/// A volume that keeps its VM from starting, the worst first.
#[derive(Debug, Clone, Copy)]
pub(super) enum VolumeProblem<'a> {
    /// The PersistentVolume of the claim is gone.
    Lost(&'a ReadVolume),
    Failed(&'a ReadVolume, &'a DataVolumeState),
    /// The claim of the DataVolume exceeds a quota.
    QuotaExceeded(&'a ReadVolume, &'a DataVolumeState),
    /// The claim is being deleted.
    Terminating(&'a ReadVolume),
    /// There is no such claim.
    ClaimNotFound(&'a ReadVolume),
    /// There is neither DataVolume nor claim.
    DataVolumeNotFound(&'a ReadVolume),
    Paused(&'a ReadVolume, &'a DataVolumeState),
    /// The claim is not bound; of a DataVolume, because it waits for its first consumer.
    Unbound(&'a ReadVolume, Option<&'a DataVolumeState>),
    Filling(&'a ReadVolume, &'a DataVolumeState),
}

/// The worst problem of these volumes; the first one of equally bad ones.
pub(super) fn worst(read: &ReadVolumes, now_ms: UnixMs) -> Option<VolumeProblem<'_>> {
    let found = read.volumes.iter().filter_map(|volume| problem(volume, now_ms));
    found.min_by_key(VolumeProblem::rank)
}

/// What is wrong with a volume; none if nothing is, or if it could not be read.
pub(super) fn problem(volume: &ReadVolume, now_ms: UnixMs) -> Option<VolumeProblem<'_>> {
    let is_fresh = |at: UnixMs| now_ms.saturating_sub(at) <= MAX_VOLUMES_AGE_MS;
    let claim = volume.claim.found();
    let claim = claim.filter(|claim| claim.kept_ms.is_none_or(is_fresh));
    let data_volume = volume.data_volume.as_ref().and_then(ReadAnswer::found);
    if claim.is_some_and(ClaimState::is_lost) {
        return Some(VolumeProblem::Lost(volume));
    }
    if let Some(found) = data_volume
        && let Some(problem) = of_data_volume(volume, found, claim)
    {
        return Some(problem);
    }
    let Some(claim) = claim else {
        return match &volume.data_volume {
            _ if volume.claim != ReadAnswer::NotFound => None,
            Some(ReadAnswer::NotFound) => Some(VolumeProblem::DataVolumeNotFound(volume)),
            _ => Some(VolumeProblem::ClaimNotFound(volume)),
        };
    };
    if claim.is_deleting {
        return Some(VolumeProblem::Terminating(volume));
    }
    (&*claim.phase != "Bound").then_some(VolumeProblem::Unbound(volume, None))
}

/// What is wrong with the DataVolume; none if its claim is filled.
fn of_data_volume<'a>(
    volume: &'a ReadVolume,
    found: &'a DataVolumeState,
    claim: Option<&ClaimState>,
) -> Option<VolumeProblem<'a>> {
    if &*found.phase == "Failed" || failed_run(found).is_some() {
        return Some(VolumeProblem::Failed(volume, found));
    }
    if exceeded_quota(found).is_some() {
        return Some(VolumeProblem::QuotaExceeded(volume, found));
    }
    if claim.is_some_and(|claim| claim.is_deleting) {
        return Some(VolumeProblem::Terminating(volume));
    }
    match &*found.phase {
        "Succeeded" => None,
        "Paused" => Some(VolumeProblem::Paused(volume, found)),
        phase if CONSUMER_PHASES.contains(&phase) => Some(VolumeProblem::Unbound(volume, Some(found))),
        _ => Some(VolumeProblem::Filling(volume, found)),
    }
}

/// The condition that says that the import or the clone has stopped with an error.
fn failed_run(found: &DataVolumeState) -> Option<&ReportedCondition> {
    let run = found.conditions.with_status("Running", ReportedStatus::False)?;
    let reason = run.reason.as_deref()?;
    ERROR_REASONS.contains(&reason).then_some(run)
}

fn exceeded_quota(found: &DataVolumeState) -> Option<&ReportedCondition> {
    let bound = found.conditions.get("Bound")?;
    let is_refused = bound.status != ReportedStatus::True && bound.reason.as_deref() == Some(QUOTA_REASON);
    is_refused.then_some(bound)
}

/// What CDI says about a DataVolume whose pod does not run.
fn idle_text(found: &DataVolumeState) -> Option<&str> {
    let run = found.conditions.get("Running")?;
    let is_idle = run.status != ReportedStatus::True;
    run.message.as_deref().filter(|text| is_idle && !text.is_empty())
}

impl VolumeProblem<'_> {
    fn rank(&self) -> u8 {
        match self {
            Self::Lost(_) => 0,
            Self::Failed(..) => 1,
            Self::QuotaExceeded(..) => 2,
            Self::Terminating(_) => 3,
            Self::ClaimNotFound(_) => 4,
            Self::DataVolumeNotFound(_) => 5,
            Self::Paused(..) => 6,
            Self::Unbound(..) => 7,
            Self::Filling(..) => 8,
        }
    }

    /// One sentence with the name of the object and its phase, and with the progress of an import
    /// if asked.
    pub(super) fn sentence(&self, with_progress: bool) -> String {
        let at = |found| point(found, with_progress);
        let name = &self.volume().volume.claim;
        match self {
            Self::Lost(_) => format!(
                "the PersistentVolumeClaim {name} of the VM is Lost: its PersistentVolume does not exist any more"
            ),
            Self::Failed(_, found) => {
                let why = failed_run(found).map_or("no reason is given", ReportedCondition::text);
                format!(
                    "the DataVolume {name} of the VM has failed ({}): {why}",
                    at(found)
                )
            }
            Self::QuotaExceeded(_, found) => {
                let why = exceeded_quota(found).map_or("no reason is given", ReportedCondition::text);
                format!("the claim of the DataVolume {name} of the VM exceeds a quota: {why}")
            }
            Self::Terminating(_) => {
                format!("the PersistentVolumeClaim {name} of the VM is being deleted, so no pod can use it")
            }
            Self::ClaimNotFound(_) => {
                format!("the PersistentVolumeClaim {name} of the VM does not exist")
            }
            Self::DataVolumeNotFound(_) => {
                format!(
                    "the DataVolume {name} of the VM does not exist, nor does a PersistentVolumeClaim of this name"
                )
            }
            Self::Paused(_, found) => {
                format!(
                    "the DataVolume {name} of the VM is {}, so nothing fills its volume",
                    at(found)
                )
            }
            Self::Unbound(volume, None) => {
                let claim = volume.claim.found();
                let phase = claim.map_or("", |claim| &claim.phase);
                let class = claim.and_then(|claim| claim.storage_class.as_deref());
                let class = class.map(|class| format!(" (storage class {class})"));
                format!(
                    "the VM waits for its PersistentVolumeClaim {name}, which is {}{}",
                    if phase.is_empty() { "without phase" } else { phase },
                    class.unwrap_or_default()
                )
            }
            Self::Unbound(_, Some(found)) => format!(
                "the VM waits for its DataVolume {name}, which is {}: its claim is bound once the \
                 virt-launcher pod has a node",
                at(found)
            ),
            Self::Filling(_, found) => {
                let idle = idle_text(found).map(|text| format!(" ({text})"));
                format!(
                    "the VM waits for its DataVolume {name}, which is {}{}",
                    at(found),
                    idle.unwrap_or_default()
                )
            }
        }
    }

    /// The command that shows the object, with its Events. The name is a valid one, so it needs no
    /// quotes.
    pub(super) fn next(&self, vm: &VmKey) -> String {
        let kind = match self {
            Self::Lost(_) | Self::Terminating(_) | Self::ClaimNotFound(_) | Self::Unbound(_, None) => "pvc",
            Self::Failed(..)
            | Self::QuotaExceeded(..)
            | Self::DataVolumeNotFound(_)
            | Self::Paused(..)
            | Self::Unbound(_, Some(_))
            | Self::Filling(..) => "datavolume",
        };
        format!(
            "kubectl -n {} describe {kind} {}",
            vm.namespace,
            self.volume().volume.claim
        )
    }

    fn volume(&self) -> &ReadVolume {
        match self {
            Self::Lost(volume)
            | Self::Failed(volume, _)
            | Self::QuotaExceeded(volume, _)
            | Self::Terminating(volume)
            | Self::ClaimNotFound(volume)
            | Self::DataVolumeNotFound(volume)
            | Self::Paused(volume, _)
            | Self::Unbound(volume, _)
            | Self::Filling(volume, _) => volume,
        }
    }
}

/// Phase and progress, e.g. `ImportInProgress at 40.00%`.
fn point(found: &DataVolumeState, with_progress: bool) -> String {
    let phase = if found.phase.is_empty() {
        "without phase"
    } else {
        &found.phase
    };
    match &found.progress {
        Some(progress) if with_progress => format!("{phase} at {progress}"),
        _ => phase.to_owned(),
    }
}
