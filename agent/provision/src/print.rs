//! Prints the results of reconcile runs.

use virtfleet_agent_core::pass::StepRecord;

use super::Applied;

/// Text for people: one line for each step, or one for a stage without steps.
pub fn text(passes: &[Applied]) -> String {
    passes.iter().map(stage_text).collect()
}

fn stage_text(pass: &Applied) -> String {
    let stage = pass.stage.word();
    if pass.record.steps.is_empty() {
        return format!("{:7}  {stage}: this version has nothing to do here\n", "skipped");
    }
    let line = |step: &StepRecord| {
        format!(
            "{:7}  {stage} {}: {}\n",
            step.outcome.word(),
            step.name,
            step.message
        )
    };
    pass.record.steps.iter().map(line).collect()
}
