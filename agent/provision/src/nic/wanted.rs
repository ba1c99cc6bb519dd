//! What the settings ask of network interfaces.

use virtfleet_agent_core::nic::{
    Asked, Plan, check,
    plan::{Refusal, RefusalKind},
};
use virtfleet_agent_state::settings::LoadedSettings;

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
            asked: Asked::read_only(),
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
