//! The settings of network interfaces, as far as they can be used.

use virtfleet_agent_core::nic::{
    Asked, Plan, check,
    plan::{Refusal, RefusalKind},
};
use virtfleet_agent_state::settings::LoadedSettings;

/// The requested configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The request. If nothing may be changed, it holds what an observation needs.
    pub asked: Asked,
    /// Why nothing may be changed: the settings are invalid, or some of them are unknown.
    pub refusals: Vec<Refusal>,
}

/// The request of the settings. An invalid section, or a file that was skipped, changes nothing:
/// neither the current state nor what the agent has set.
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
    /// Removes from a plan everything that the settings do not request.
    pub fn limit(&self, mut plan: Plan) -> Plan {
        if !self.refusals.is_empty() {
            plan.steps.clear();
            plan.notes.clear();
            plan.refusals.clone_from(&self.refusals);
        }
        plan
    }
}
