//! Step `nic` of a pass.

use std::time::Duration;

use virtfleet_agent_core::{
    nic::{
        Asked, Plan, check,
        plan::{Refusal, RefusalKind},
        state::{NicStanding, NicState, Standing},
    },
    pass::{Outcome, Stage},
};
use virtfleet_agent_host::{Unwatched, nic_calls};
use virtfleet_agent_state::settings::LoadedSettings;
use virtfleet_wire::settings::Multiqueue;

use super::{Engine, How, real};
use crate::{
    disks::{Machine, chain},
    steps::{Guest, Report},
};

/// What the stage of the boot has for this. What it takes is taken from the time for DNS, which follows.
const IN_BOOT: Duration = Duration::from_secs(20);

/// What the settings ask for, as far as they can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What is asked for; when nothing may be done, what looking needs.
    pub asked: Asked,
    /// Why nothing may be done: the settings are wrong, or not all of them are known.
    pub refusals: Vec<Refusal>,
}

/// What the settings ask for. A section that is wrong, or a file that is left out, changes nothing: neither what there is nor what is ours.
pub fn wanted(settings: &LoadedSettings) -> Wanted {
    let refusal = |subject: &str, message: String| Refusal {
        kind: RefusalKind::Settings,
        subject: subject.to_owned(),
        message,
        remedy: "virtfleet-agent check-config".to_owned(),
    };
    let wrong = settings
        .problems
        .iter()
        .filter(|problem| ["nic", "virtio"].contains(&problem.section()))
        .map(|problem| refusal(&problem.path, problem.to_string()));
    let mut refusals: Vec<Refusal> = wrong.collect();
    let checked = check(&settings.config.nic, &settings.config.virtio);
    if let (Err(problems), true) = (&checked, refusals.is_empty()) {
        let each = problems.iter();
        refusals.extend(
            each.map(|problem| refusal(&problem.path, format!("{}: {}", problem.path, problem.message))),
        );
    }
    if let (true, Some(file)) = (refusals.is_empty(), settings.skipped.first()) {
        let message = format!("{file} is left out, so what is asked of queues is not known");
        refusals.push(refusal(file, message));
    }
    match checked {
        Ok(asked) if refusals.is_empty() => Wanted { asked, refusals },
        _ => Wanted {
            asked: Asked::only_look(),
            refusals,
        },
    }
}

impl Wanted {
    /// Takes everything out of a plan that the settings do not carry.
    pub fn limit(&self, mut plan: Plan) -> Plan {
        if !self.refusals.is_empty() {
            plan.steps.clear();
            plan.notes.clear();
            plan.refusals.clone_from(&self.refusals);
        }
        plan
    }
}

pub(in super::super) fn run(guest: &mut Guest<'_>) -> Report {
    if guest.services.is_none() {
        let message = "the root filesystem is not the running machine's; its queues are left alone";
        return Report::new(Outcome::Skipped, message);
    }
    let machine = Machine::of(guest.roots);
    let calls = nic_calls(guest.roots);
    let world = real(guest.roots, &*calls);
    let engine = Engine {
        roots: guest.roots,
        world: &world,
        calls: &*calls,
        witness: &Unwatched,
        boot_id: &machine.boot_id,
    };
    let how = How {
        within: (guest.stage == Stage::Dns).then_some(IN_BOOT),
        ..How::default()
    };
    match engine.pass(&wanted(guest.settings), how) {
        Err(error) => Report::new(Outcome::Failed, chain(error)),
        // Without an expected plan there is always a pass.
        Ok(None) => Report::new(Outcome::Ok, "nothing was expected"),
        Ok(Some(passed)) => {
            let outcome = if failed(&passed.state) {
                Outcome::Failed
            } else {
                Outcome::Ok
            };
            Report::new(outcome, passed.state.summary())
        }
    }
}

/// Whether something failed, a link is not as before still, or it did not come back with what is to be set by itself.
pub fn failed(state: &NicState) -> bool {
    let mut standings = state.nics.values();
    let rolled_back = standings.any(|nic| nic.standing == Standing::RolledBack);
    let broken = state.nics.values().any(NicStanding::is_broken);
    state.error.is_some() || broken || (rolled_back && state.multiqueue == Multiqueue::Auto)
}
