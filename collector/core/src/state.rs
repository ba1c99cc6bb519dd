//! State of a VM, derived from its VMI, or from its VirtualMachine if there is no VMI.

use crate::{
    facts::{Migration, Phase, Vm, Vmi},
    view::VmState,
};

/// `status.printableStatus` of a VirtualMachine without VMI that is to get one
/// (`setPrintableStatus` of KubeVirt's `pkg/virt-controller/watch/vm/vm.go`).
const STARTING: [&str; 4] = [
    "Provisioning",
    "WaitingForVolumeBinding",
    "Starting",
    "WaitingForReceiver",
];

/// The state of a VM, by its VMI, or by its VirtualMachine if there is no VMI.
///
/// Precedence: ended (`Succeeded`, `Failed`), deletion, pause, migration. The earlier one says more
/// about whether an agent can answer.
pub fn vm_state(vmi: Option<&Vmi>, vm: Option<&Vm>) -> VmState {
    let Some(vmi) = vmi else {
        return without_vmi(vm);
    };
    if !vmi.has_status {
        return VmState::Unknown;
    }
    match vmi.phase {
        Phase::Succeeded => VmState::Succeeded,
        Phase::Failed => VmState::Failed,
        Phase::Unknown | Phase::Other => VmState::Unknown,
        _ if vmi.deleting => VmState::Stopping,
        Phase::Unset | Phase::Pending | Phase::Scheduling | Phase::Scheduled | Phase::WaitingForSync => {
            VmState::Starting
        }
        Phase::Running if vmi.paused => VmState::Paused,
        Phase::Running if vmi.migration.as_ref().is_some_and(Migration::in_progress) => VmState::Migrating,
        Phase::Running => VmState::Running,
    }
}

fn without_vmi(vm: Option<&Vm>) -> VmState {
    let shown = vm
        .filter(|vm| !vm.is_halted())
        .and_then(|vm| vm.printable_status.as_deref());
    if shown.is_some_and(|shown| STARTING.contains(&shown)) {
        VmState::Starting
    } else {
        VmState::Stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        facts::RunStrategy,
        store::tests::{vm, vmi},
    };

    #[test]
    fn a_vm_without_vmi_is_starting_or_stopped() {
        for (printable, is_starting) in [
            (Some("Provisioning"), true),
            (Some("WaitingForVolumeBinding"), true),
            (Some("Starting"), true),
            (Some("WaitingForReceiver"), true),
            (Some("Stopped"), false),
            (Some("Stopping"), false),
            (Some("ErrorDataVolumeNotFound"), false),
            (Some("CrashLoopBackOff"), false),
            (Some("Running"), false),
            (None, false),
        ] {
            let mut of_vm = vm("ns", "a");
            of_vm.printable_status = printable.map(str::to_owned);
            let state = vm_state(None, Some(&of_vm));
            assert_eq!(state == VmState::Starting, is_starting, "{printable:?}");
            assert!(is_starting || state == VmState::Stopped, "{printable:?}");
            of_vm.run_strategy = Some(RunStrategy::Halted);
            assert_eq!(vm_state(None, Some(&of_vm)), VmState::Stopped, "{printable:?}");
            // The VMI knows better.
            assert_eq!(vm_state(Some(&vmi("ns", "a")), Some(&of_vm)), VmState::Running);
        }
    }

    #[test]
    fn every_phase_and_condition_has_its_state() {
        let moving = |completed, failed, end: Option<&str>| {
            Some(Migration {
                target: Some("n".parse().unwrap()),
                completed,
                failed,
                end: end.map(str::to_owned),
                ..Migration::default()
            })
        };
        let case = |change: fn(&mut Vmi)| {
            let mut vmi = vmi("ns", "a");
            change(&mut vmi);
            vm_state(Some(&vmi), None)
        };
        assert_eq!(vm_state(None, None), VmState::Stopped);
        assert_eq!(case(|_| {}), VmState::Running);
        assert_eq!(case(|v| v.has_status = false), VmState::Unknown);
        for phase in [Phase::Unknown, Phase::Other] {
            let mut vmi = vmi("ns", "a");
            vmi.phase = phase;
            assert_eq!(vm_state(Some(&vmi), None), VmState::Unknown, "{phase:?}");
        }
        assert_eq!(case(|v| v.phase = Phase::Unset), VmState::Starting);
        assert_eq!(case(|v| v.phase = Phase::WaitingForSync), VmState::Starting);
        assert_eq!(case(|v| v.phase = Phase::Pending), VmState::Starting);
        assert_eq!(case(|v| v.phase = Phase::Scheduling), VmState::Starting);
        assert_eq!(case(|v| v.phase = Phase::Scheduled), VmState::Starting);
        assert_eq!(case(|v| v.paused = true), VmState::Paused);
        assert_eq!(case(|v| v.deleting = true), VmState::Stopping);
        assert_eq!(
            case(|v| (v.phase, v.deleting) = (Phase::Failed, true)),
            VmState::Failed
        );
        assert_eq!(case(|v| v.phase = Phase::Succeeded), VmState::Succeeded);
        for (migration, state) in [
            (moving(false, false, None), VmState::Migrating),
            (moving(true, false, Some("t")), VmState::Running),
            (moving(false, true, None), VmState::Running),
            // A VMI that waits for another cluster: neither start nor target.
            (Some(Migration::default()), VmState::Running),
        ] {
            let mut vmi = vmi("ns", "a");
            vmi.migration = migration;
            assert_eq!(vm_state(Some(&vmi), None), state);
        }
    }
}
