//! Whether a VM waits for a volume, as KubeVirt and the scheduler say in the objects that are
//! watched anyway.

use crate::{
    facts::{Vm, Vmi},
    reported::{ReportedConditions, ReportedStatus},
    view::VmState,
};

/// Reason of the VMI's condition `Synchronized` if a claim does not exist
/// (`pkg/controller/controller.go` of KubeVirt).
const CLAIM_NOT_FOUND: &str = "FailedPvcNotFound";
/// Parts of the scheduler's messages about claims, in lower case. They are about the pod as a
/// whole, whatever the nodes are: `pkg/scheduler/framework/plugins/volumebinding` of Kubernetes.
/// Messages about nodes out of a volume's reach are not among them, because other nodes may have
/// no room.
const CLAIM_MESSAGES: [&str; 2] = ["persistentvolumeclaims", "persistentvolumeclaim \""];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VolumeWait<'a> {
    ClaimNotFound,
    DataVolumeNotFound,
    DataVolumeFailed,
    /// The scheduler says that a claim cannot be used; with its message.
    Unschedulable(&'a str),
    /// A DataVolume is being filled.
    Provisioning,
    /// A claim is not bound.
    Binding,
    /// The VMI's condition `DataVolumesReady` is `False`; with its message.
    NotReady(&'a str),
}

/// What the VM waits for; none if it waits for no volume. A VM that its owner has stopped waits
/// only for what could never start.
///
/// Source: `setPrintableStatus` of KubeVirt's `pkg/virt-controller/watch/vm/vm.go`.
pub(crate) fn wait_of<'a>(
    vm: Option<&'a Vm>,
    vmi: Option<&'a Vmi>,
    state: VmState,
) -> Option<VolumeWait<'a>> {
    let conditions = vmi.map(|vmi| &vmi.conditions);
    let not = |kind| conditions.and_then(|all| all.with_status(kind, ReportedStatus::False));
    let not_ready = not("DataVolumesReady").map(|one| VolumeWait::NotReady(one.text()));
    match state {
        VmState::Stopped | VmState::Starting => {}
        VmState::Running | VmState::Migrating | VmState::Paused => return not_ready,
        VmState::Stopping | VmState::Succeeded | VmState::Failed | VmState::Unknown => return None,
    }
    let is_halted = vmi.is_none() && vm.is_some_and(Vm::is_halted);
    match vm.and_then(|vm| vm.printable_status.as_deref()) {
        Some("ErrorPvcNotFound") => return Some(VolumeWait::ClaimNotFound),
        Some("ErrorDataVolumeNotFound") => return Some(VolumeWait::DataVolumeNotFound),
        Some("DataVolumeError") => return Some(VolumeWait::DataVolumeFailed),
        Some("Provisioning") if !is_halted => return Some(VolumeWait::Provisioning),
        Some("WaitingForVolumeBinding") if !is_halted => return Some(VolumeWait::Binding),
        _ => {}
    }
    let lacks_claim = not("Synchronized").filter(|one| one.reason.as_deref() == Some(CLAIM_NOT_FOUND));
    if lacks_claim.is_some() {
        return Some(VolumeWait::ClaimNotFound);
    }
    let refused = conditions.and_then(scheduler_on_claims);
    refused.map(VolumeWait::Unschedulable).or(not_ready)
}

/// The scheduler's message, if a claim is why it cannot schedule the virt-launcher pod.
fn scheduler_on_claims(conditions: &ReportedConditions) -> Option<&str> {
    let refused = conditions.with_status("PodScheduled", ReportedStatus::False)?;
    let message = refused.message.as_deref()?;
    let plain = message.to_ascii_lowercase();
    CLAIM_MESSAGES
        .iter()
        .any(|part| plain.contains(part))
        .then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        facts::RunStrategy,
        reported::ReportedCondition,
        store::tests::{vm, vmi},
    };

    fn with(kind: &str, reason: &str, message: &str) -> Vmi {
        let mut made = vmi("ns", "a");
        let one = ReportedCondition::new(kind, ReportedStatus::False, Some(reason), Some(message));
        made.conditions = ReportedConditions::new([one]);
        made
    }

    #[test]
    fn kubevirts_status_says_what_a_vm_waits_for() {
        let unbound = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
        let gone = "persistentvolumeclaim \"root\" not found";
        let no_room =
            "0/3 nodes are available: 2 Insufficient memory, 1 node(s) had volume node affinity conflict.";
        let starting = VmState::Starting;
        for (printable, vmi, state, expected) in [
            (
                Some("ErrorPvcNotFound"),
                None,
                VmState::Stopped,
                Some(VolumeWait::ClaimNotFound),
            ),
            (
                Some("ErrorDataVolumeNotFound"),
                None,
                VmState::Stopped,
                Some(VolumeWait::DataVolumeNotFound),
            ),
            (
                Some("DataVolumeError"),
                None,
                VmState::Stopped,
                Some(VolumeWait::DataVolumeFailed),
            ),
            (
                Some("Provisioning"),
                None,
                VmState::Stopped,
                Some(VolumeWait::Provisioning),
            ),
            (
                Some("WaitingForVolumeBinding"),
                None,
                VmState::Stopped,
                Some(VolumeWait::Binding),
            ),
            (Some("Stopped"), None, VmState::Stopped, None),
            (Some("Starting"), None, starting, None),
            (Some("Running"), None, VmState::Running, None),
            // An older status of the VirtualMachine does not speak for a VMI that runs.
            (Some("WaitingForVolumeBinding"), None, VmState::Running, None),
            (Some("Provisioning"), None, VmState::Failed, None),
            (
                Some("ErrorUnschedulable"),
                Some(with("PodScheduled", "Unschedulable", unbound)),
                starting,
                Some(VolumeWait::Unschedulable(unbound)),
            ),
            (
                None,
                Some(with("PodScheduled", "Unschedulable", gone)),
                starting,
                Some(VolumeWait::Unschedulable(gone)),
            ),
            (
                Some("ErrorUnschedulable"),
                Some(with("PodScheduled", "Unschedulable", no_room)),
                starting,
                None,
            ),
            (
                None,
                Some(with("Synchronized", "FailedPvcNotFound", "m")),
                starting,
                Some(VolumeWait::ClaimNotFound),
            ),
            (
                None,
                Some(with("Synchronized", "FailedCreate", "m")),
                starting,
                None,
            ),
            (
                Some("Starting"),
                Some(with("DataVolumesReady", "NotAllDVsReady", "m")),
                starting,
                Some(VolumeWait::NotReady("m")),
            ),
            (
                Some("Running"),
                Some(with("DataVolumesReady", "NotAllDVsReady", "m")),
                VmState::Running,
                Some(VolumeWait::NotReady("m")),
            ),
        ] {
            let mut of_vm = vm("ns", "a");
            of_vm.printable_status = printable.map(str::to_owned);
            let found = wait_of(Some(&of_vm), vmi.as_ref(), state);
            assert_eq!(found, expected, "{printable:?} {vmi:?} {state:?}");
        }
    }

    #[test]
    fn a_vm_that_its_owner_has_stopped_waits_only_for_what_can_never_start() {
        for (printable, expected) in [
            ("Provisioning", None),
            ("WaitingForVolumeBinding", None),
            ("DataVolumeError", Some(VolumeWait::DataVolumeFailed)),
            ("ErrorPvcNotFound", Some(VolumeWait::ClaimNotFound)),
        ] {
            let mut of_vm = vm("ns", "a");
            of_vm.printable_status = Some(printable.to_owned());
            of_vm.run_strategy = Some(RunStrategy::Halted);
            assert_eq!(
                wait_of(Some(&of_vm), None, VmState::Stopped),
                expected,
                "{printable}"
            );
        }
    }
}
