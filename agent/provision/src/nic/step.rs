//! The step `nic`.

use std::time::Duration;

use virtfleet_agent_core::{
    nic::{
        Plan,
        state::{NicState, NicStatus, QueueStatus},
    },
    pass::{RunOutcome, Stage},
};
use virtfleet_agent_host::{NoFailPoints, nic_calls};
use virtfleet_wire::settings::Multiqueue;

use super::{NicProvisioner, real, wanted};
use crate::{
    engine::{Mode, RunResult, report},
    guest::{Guest, Report},
    machine::BootIdentity,
};

/// Time limit of a run at boot. DNS follows in the same stage and gets the rest of its time.
const BOOT_BUDGET: Duration = Duration::from_secs(20);

pub(in super::super) fn run(guest: &mut Guest<'_>) -> Report {
    if guest.services.is_none() {
        let message = "the root filesystem is not the running machine's; its queues are left alone";
        return Report::new(RunOutcome::Skipped, message);
    }
    let boot = BootIdentity::of(guest.roots);
    let calls = nic_calls(guest.roots);
    let provisioner = NicProvisioner {
        roots: guest.roots,
        world: &real(guest.roots, &*calls),
        calls: &*calls,
        fail_points: &NoFailPoints,
        boot_id: &boot.boot_id,
    };
    let budget = (guest.stage == Stage::Dns).then_some(BOOT_BUDGET);
    let outcome = |result: &RunResult<Plan, NicState>| {
        if failed(&result.state) {
            RunOutcome::Failed
        } else {
            RunOutcome::Ok
        }
    };
    let result = provisioner.run(&wanted(guest.settings), Mode::of_stage(guest.stage, budget));
    report(result, outcome, NicState::summary)
}

/// True if something failed, a link is not as before, or a link did not recover with a number that
/// is to be set automatically.
pub fn failed(state: &NicState) -> bool {
    let mut standings = state.nics.values();
    let rolled_back = standings.any(|nic| nic.standing == QueueStatus::RolledBack);
    let broken = state.nics.values().any(NicStatus::is_broken);
    state.error.is_some() || broken || (rolled_back && state.multiqueue == Multiqueue::Auto)
}
