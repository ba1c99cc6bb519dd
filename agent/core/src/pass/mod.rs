//! A pass of `virtfleet-agent apply`: which steps a stage has, in which order they run, what their outcomes come to, and the
//! record that is kept of it.

mod record;
mod settings;
mod triggers;

pub use record::{FORMAT, GuestRecord, Outcome, SettingsProblem, StageRecord, StepRecord};
pub use settings::{Agent, SettingsPlan, SettingsSeen, plan_settings, serving, serving_words};
pub use triggers::{MOST_TRIGGERS, trigger_names};

use serde::{Deserialize, Serialize};

/// When a pass is made. Each has a systemd unit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Once a boot, before the network and before containers.
    Provision,
    /// Once a boot, when the network is up.
    Dns,
    /// Whenever something has changed, and now and then.
    Reconcile,
}

impl Stage {
    /// All of them, in their order in a boot.
    pub const ALL: [Self; 3] = [Self::Provision, Self::Dns, Self::Reconcile];

    /// As on the command line and in the record.
    pub fn word(self) -> &'static str {
        match self {
            Self::Provision => "provision",
            Self::Dns => "dns",
            Self::Reconcile => "reconcile",
        }
    }

    /// The unit that makes this pass.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Provision => "virtfleet-provision.service",
            Self::Dns => "virtfleet-dns.service",
            Self::Reconcile => "virtfleet-reconcile.service",
        }
    }
}

/// A step as it is planned: its name, its stages, and the steps without which it makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepPlan {
    /// Its name.
    pub name: &'static str,
    /// The stages that it belongs to.
    pub stages: &'static [Stage],
    /// Steps that must not have failed before it; those that do not run in this stage do not count.
    pub needs: &'static [&'static str],
}

/// Why a step is left out: the first of the steps that it needs and that failed or was left out.
pub fn blocked_by(plan: &StepPlan, before: &[StepRecord]) -> Option<&'static str> {
    let bad = |name: &&&'static str| {
        let earlier = before.iter().find(|step| step.name == **name);
        earlier.is_some_and(|step| step.outcome == Outcome::Failed || step.blocked)
    };
    plan.needs.iter().find(bad).copied()
}

/// What the steps' outcomes come to: failed when one has failed, skipped when none did anything, else ok.
pub fn sum_up(steps: &[StepRecord]) -> Outcome {
    let any = |outcome| steps.iter().any(|step| step.outcome == outcome);
    match (any(Outcome::Failed), any(Outcome::Ok)) {
        (true, _) => Outcome::Failed,
        (false, true) => Outcome::Ok,
        (false, false) => Outcome::Skipped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, outcome: Outcome) -> StepRecord {
        StepRecord {
            name: name.into(),
            outcome,
            ..StepRecord::default()
        }
    }

    #[test]
    fn a_step_is_left_out_only_when_one_that_it_needs_failed() {
        let plan = StepPlan {
            name: "c",
            stages: &[Stage::Provision],
            needs: &["a", "elsewhere"],
        };
        let b = step("b", Outcome::Failed);
        for (before, blocked) in [
            (vec![], None),
            (vec![step("a", Outcome::Ok), b.clone()], None),
            (vec![step("a", Outcome::Skipped), b.clone()], None),
            (vec![step("a", Outcome::Failed), b.clone()], Some("a")),
            (
                vec![StepRecord {
                    blocked: true,
                    ..step("a", Outcome::Skipped)
                }],
                Some("a"),
            ),
        ] {
            assert_eq!(blocked_by(&plan, &before), blocked, "{before:?}");
        }
    }

    #[test]
    fn outcomes_are_summed_up() {
        use Outcome::{Failed, Ok, Skipped};
        for (outcomes, sum) in [
            (&[][..], Skipped),
            (&[Skipped], Skipped),
            (&[Ok, Skipped], Ok),
            (&[Ok, Failed, Ok], Failed),
        ] {
            let steps: Vec<_> = outcomes.iter().map(|outcome| step("s", *outcome)).collect();
            assert_eq!(sum_up(&steps), sum, "{outcomes:?}");
        }
    }

    #[test]
    fn words_are_those_of_the_record() {
        for stage in Stage::ALL {
            assert_eq!(serde_json::to_value(stage).unwrap(), stage.word());
            assert!(stage.unit().contains(stage.word()));
        }
    }
}
