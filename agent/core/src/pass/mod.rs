//! Runs of `virtfleet-agent apply`: the steps of a stage, their order, the overall result, and the
//! record that the run leaves.

mod record;
mod settings;
mod stage;
mod triggers;

pub use record::{FORMAT, GuestRecord, RunOutcome, SettingsProblem, StageRecord, StepRecord};
pub use settings::{AgentState, SettingsPlan, SettingsSeen, plan_settings, served_digest, status_line};
pub use stage::Stage;
pub use triggers::{MAX_TRIGGERS, trigger_names};

/// Definition of a step: its name, its stages and its dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepPlan {
    pub name: &'static str,
    pub stages: &'static [Stage],
    /// Steps that must not have failed before this one. Steps of other stages are ignored.
    pub needs: &'static [&'static str],
}

/// Returns the first dependency of `plan` that failed or was itself blocked, if any.
pub fn blocked_by(plan: &StepPlan, before: &[StepRecord]) -> Option<&'static str> {
    let bad = |name: &&&'static str| {
        let earlier = before.iter().find(|step| step.name == **name);
        earlier.is_some_and(|step| step.outcome == RunOutcome::Failed || step.blocked)
    };
    plan.needs.iter().find(bad).copied()
}

/// Overall result of a run: failed if a step failed, skipped if no step did anything, otherwise ok.
pub fn sum_up(steps: &[StepRecord]) -> RunOutcome {
    let any = |outcome| steps.iter().any(|step| step.outcome == outcome);
    match (any(RunOutcome::Failed), any(RunOutcome::Ok)) {
        (true, _) => RunOutcome::Failed,
        (false, true) => RunOutcome::Ok,
        (false, false) => RunOutcome::Skipped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, outcome: RunOutcome) -> StepRecord {
        StepRecord {
            name: name.into(),
            outcome,
            ..StepRecord::default()
        }
    }

    #[test]
    fn step_is_blocked_only_by_failed_dependencies() {
        let plan = StepPlan {
            name: "c",
            stages: &[Stage::Provision],
            needs: &["a", "elsewhere"],
        };
        let b = step("b", RunOutcome::Failed);
        for (before, blocked) in [
            (vec![], None),
            (vec![step("a", RunOutcome::Ok), b.clone()], None),
            (vec![step("a", RunOutcome::Skipped), b.clone()], None),
            (vec![step("a", RunOutcome::Failed), b.clone()], Some("a")),
            (
                vec![StepRecord {
                    blocked: true,
                    ..step("a", RunOutcome::Skipped)
                }],
                Some("a"),
            ),
        ] {
            assert_eq!(blocked_by(&plan, &before), blocked, "{before:?}");
        }
    }

    #[test]
    fn outcomes_are_summed_up() {
        use RunOutcome::{Failed, Ok, Skipped};
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
    fn stage_names_match_the_record() {
        for stage in Stage::ALL {
            assert_eq!(serde_json::to_value(stage).unwrap(), stage.word());
            assert!(stage.unit().contains(stage.word()));
        }
    }
}
