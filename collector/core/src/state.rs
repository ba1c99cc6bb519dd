//! State of a VM, derived from its VMI.

use crate::{
    facts::{Migration, Phase, Vmi},
    view::VmState,
};

/// The state of a VM whose VMI is `vmi`; none: only the VirtualMachine exists.
///
/// Precedence: ended (`Succeeded`, `Failed`), deletion, pause, migration. The earlier one says more
/// about whether an agent can answer.
pub fn vm_state(vmi: Option<&Vmi>) -> VmState {
    let Some(vmi) = vmi else { return VmState::Stopped };
    if !vmi.has_status {
        return VmState::Unknown;
    }
    match vmi.phase {
        Phase::Succeeded => VmState::Succeeded,
        Phase::Failed => VmState::Failed,
        Phase::Unknown => VmState::Unknown,
        _ if vmi.deleting => VmState::Stopping,
        Phase::Pending | Phase::Scheduling | Phase::Scheduled => VmState::Starting,
        Phase::Running if vmi.paused => VmState::Paused,
        Phase::Running if vmi.migration.as_ref().is_some_and(Migration::in_progress) => VmState::Migrating,
        Phase::Running => VmState::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::vmi;

    #[test]
    fn every_phase_and_condition_has_its_state() {
        let moving = |completed, failed, end: Option<&str>| {
            Some(Migration {
                source: None,
                target: None,
                completed,
                failed,
                start: None,
                end: end.map(str::to_owned),
                mode: None,
                failure_reason: None,
                ..Migration::default()
            })
        };
        let case = |change: fn(&mut Vmi)| {
            let mut vmi = vmi("ns", "a");
            change(&mut vmi);
            vm_state(Some(&vmi))
        };
        assert_eq!(vm_state(None), VmState::Stopped);
        assert_eq!(case(|_| {}), VmState::Running);
        assert_eq!(case(|v| v.has_status = false), VmState::Unknown);
        assert_eq!(case(|v| v.phase = Phase::Unknown), VmState::Unknown);
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
        ] {
            let mut vmi = vmi("ns", "a");
            vmi.migration = migration;
            assert_eq!(vm_state(Some(&vmi)), state);
        }
    }
}
