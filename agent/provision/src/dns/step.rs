//! The step `dns`, and the limits that wrong settings put on a plan.

use std::time::Duration;

use virtfleet_agent_core::{
    dns::{
        Plan, ResolvConf,
        kubelet::for_kubelet,
        plan::DnsStep,
        render::OurFile,
        state::{DnsState, DnsStatus},
    },
    pass::{RunOutcome, Stage},
};
use virtfleet_agent_state::settings::dns::{Wanted, wanted};
use virtfleet_wire::settings::DnsManage;

use super::{DnsProvisioner, Observed, time::STAGE_BUDGET};
use crate::{
    engine::{Mode, RunResult, report},
    guest::{Guest, Report},
    machine::BootIdentity,
};

/// How long the boot waits for a network before a run that may change DNS: less than the unit's start timeout, with what follows.
const NETWORK_WAIT: Duration = Duration::from_secs(30);
/// The same before a run that only reports.
const NETWORK_WAIT_TO_REPORT: Duration = Duration::from_secs(5);

impl Observed {
    /// Takes everything out of a plan that the settings do not carry.
    #[must_use]
    pub fn limited_to(mut self, wanted: &Wanted) -> Self {
        if !wanted.refusals.is_empty() {
            let plan = &mut self.plan;
            plan.choice = None;
            plan.steps.clear();
            plan.asked = ResolvConf::default();
            plan.trimmed.clear();
            plan.warnings.clear();
            plan.refusals.clone_from(&wanted.refusals);
            // Nobody has asked for what the defaults make of it: what pods read stays, and one that is not there is as it was verified last.
            let file = for_kubelet(&self.seen, None, &plan.collisions, &plan.judged);
            plan.kubelet = file
                .filter(|file| !self.seen.files.contains_key(&file.path))
                .map(|OurFile { path, text, mode }| DnsStep::WriteFile { path, text, mode });
        }
        self
    }
}

pub(in super::super) fn run(guest: &mut Guest<'_>) -> Report {
    if guest.services.is_none() {
        let message = "the root filesystem is not the running machine's; its resolver is left alone";
        return Report::new(RunOutcome::Skipped, message);
    }
    let boot = BootIdentity::of(guest.roots);
    let wanted = wanted(guest.roots, guest.settings);
    let provisioner = DnsProvisioner {
        network_wait: match (guest.stage, wanted.asked.manage) {
            (Stage::Dns, DnsManage::Auto) => NETWORK_WAIT,
            (Stage::Dns, DnsManage::ReportOnly) => NETWORK_WAIT_TO_REPORT,
            _ => Duration::ZERO,
        },
        ..DnsProvisioner::of_guest(guest.roots, &boot)
    };
    let left = STAGE_BUDGET.saturating_sub(guest.began.elapsed());
    let budget = (guest.stage == Stage::Dns).then_some(left);
    let outcome = |result: &RunResult<Plan, DnsState>| {
        if failed(&result.state) {
            RunOutcome::Failed
        } else if result.state.standing == DnsStatus::Off && !result.changed {
            RunOutcome::Skipped
        } else {
            RunOutcome::Ok
        }
    };
    let result = provisioner.run(&wanted, Mode::of_stage(guest.stage, budget));
    report(result, outcome, DnsState::summary)
}

/// Whether something failed, or DNS that is to be put right is not.
pub fn failed(state: &DnsState) -> bool {
    let bad = matches!(
        state.standing,
        DnsStatus::Broken | DnsStatus::Colliding | DnsStatus::RolledBack | DnsStatus::Unknown
    );
    state.error.is_some() || (bad && state.manage == DnsManage::Auto && !state.has_no_nameserver())
}
