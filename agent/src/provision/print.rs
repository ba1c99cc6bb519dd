//! Prints what came of the passes.

use virtfleet_agent_core::pass::StepRecord;

use super::Applied;
use crate::output::Output;

/// The passes in a format; as text, a line a step, or one for a stage that has none.
pub fn print(passes: &[Applied], output: Output) -> Result<String, serde_json::Error> {
    output.render(&passes, |passes| passes.iter().map(text).collect())
}

fn text(pass: &Applied) -> String {
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
