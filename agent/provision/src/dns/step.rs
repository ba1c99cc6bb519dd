//! The step `dns`, and how invalid settings restrict a plan.

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

/// How long the boot waits for a network before a run that may change DNS. Together with what
/// follows it is less than the unit's start timeout.
const NETWORK_WAIT: Duration = Duration::from_secs(30);
/// The same wait before a run that only reports.
const NETWORK_WAIT_TO_REPORT: Duration = Duration::from_secs(5);

impl Observed {
    /// Removes from a plan everything that the settings do not request.
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
            // The settings are unusable, so their defaults were not requested. The file that pods
            // read stays; if it is missing, the plan writes the content that was last verified.
            let file = for_kubelet(&self.seen, None, &plan.collisions, &plan.judged);
            let verified = file.map(|OurFile { path, text, mode }| DnsStep::WriteFile { path, text, mode });
            // Else it is the file that the advice names.
            let step = verified.or(plan.kubelet.take());
            let is_missing = |step: &DnsStep| !matches!(step, DnsStep::WriteFile { path, .. } if self.seen.files.contains_key(path));
            plan.kubelet = step.filter(is_missing);
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

/// True if something failed, or if DNS is to be managed and is not as requested.
pub fn failed(state: &DnsState) -> bool {
    let bad = matches!(
        state.standing,
        DnsStatus::Broken | DnsStatus::Colliding | DnsStatus::RolledBack | DnsStatus::Unknown
    );
    state.error.is_some() || (bad && state.manage == DnsManage::Auto && !state.has_no_nameserver())
}
