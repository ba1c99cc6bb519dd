//! Step `dns` of a pass.

use std::time::Duration;

use virtfleet_agent_core::{
    dns::{
        ResolvConf,
        kubelet::for_kubelet,
        plan::Step,
        render::OurFile,
        state::{DnsState, Standing},
    },
    pass::{Outcome, Stage},
};
use virtfleet_agent_host::{SystemCommands, Unwatched, dns::Network};
use virtfleet_agent_state::settings::dns::{Wanted, wanted};
use virtfleet_wire::settings::DnsManage;

use super::{Engine, How, Observed, SETTLE, Until};
use crate::{
    disks::{Machine, chain},
    steps::{Guest, Report},
};

/// How long the boot waits for a network, where DNS is put right: less than the unit's start timeout, with what follows.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same where it is only looked at.
const PATIENCE_TO_REPORT: Duration = Duration::from_secs(5);

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
                .map(|OurFile { path, text, mode }| Step::WriteFile { path, text, mode });
        }
        self
    }
}

pub(in super::super) fn run(guest: &mut Guest<'_>) -> Report {
    if guest.services.is_none() {
        let message = "the root filesystem is not the running machine's; its resolver is left alone";
        return Report::new(Outcome::Skipped, message);
    }
    let machine = Machine::of(guest.roots);
    let wanted = wanted(guest.roots, guest.settings);
    let engine = Engine {
        roots: guest.roots,
        commands: &SystemCommands,
        witness: &Unwatched,
        asker: &Network,
        boot_id: &machine.boot_id,
        settle: SETTLE,
    };
    let how = How {
        patience: match (guest.stage, wanted.asked.manage) {
            (Stage::Dns, DnsManage::Auto) => PATIENCE,
            (Stage::Dns, DnsManage::ReportOnly) => PATIENCE_TO_REPORT,
            _ => Duration::ZERO,
        },
        until: match guest.stage {
            Stage::Dns => Until::of_a_stage(guest.began),
            _ => Until::UNBOUNDED,
        },
        ..How::default()
    };
    match engine.pass(&wanted, how) {
        Err(error) => Report::new(Outcome::Failed, chain(error)),
        Ok(None) => Report::new(Outcome::Failed, "there was no plan to compare with"),
        Ok(Some(passed)) => {
            let outcome = if failed(&passed.state) {
                Outcome::Failed
            } else if passed.state.standing == Standing::Off && !passed.changed {
                Outcome::Skipped
            } else {
                Outcome::Ok
            };
            Report::new(outcome, passed.state.summary())
        }
    }
}

/// Whether something failed, or DNS that is to be put right is not.
pub fn failed(state: &DnsState) -> bool {
    let bad = matches!(
        state.standing,
        Standing::Broken | Standing::Colliding | Standing::RolledBack | Standing::Unknown
    );
    state.error.is_some() || (bad && state.manage == DnsManage::Auto && !state.knows_nobody())
}
