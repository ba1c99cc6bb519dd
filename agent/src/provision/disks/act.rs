//! Does the steps of one disk, in order; the first that fails ends that disk's.

use virtfleet_agent_core::disks::{DiskPlan, Step, units};

use super::{
    files, format, grow, luks, place, seed,
    session::{Effect, Session, StepError},
};

/// What came of one disk's steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// What was done, a word a step.
    pub(super) done: Vec<String>,
    /// The step that failed, and how.
    pub(super) error: Option<String>,
}

pub(super) fn disk(session: &mut Session<'_>, plan: &DiskPlan) -> Outcome {
    let mut outcome = Outcome::default();
    for (index, step) in plan.steps.iter().enumerate() {
        let word = step.word();
        session.at(&plan.name, &format!("before {word}"));
        match one(session, &plan.name, step) {
            Ok(Effect::Changed) => {
                tracing::info!(disk = plan.name, step = word, "done");
                session.changed = true;
                outcome.done.push(word.to_owned());
            }
            Ok(Effect::Unchanged) => {}
            Err(StepError(reason)) => {
                tracing::error!(disk = plan.name, step = word, reason, "failed");
                outcome.error = Some(format!("{word}: {reason}"));
                let unwritten =
                    |step: &Step| matches!(step, Step::WriteFile { path, .. } if path == units::FSTAB);
                session.fstab_stale |= plan.steps[index..].iter().any(unwritten);
                break;
            }
        }
        session.at(&plan.name, &format!("after {word}"));
    }
    outcome
}

fn one(session: &mut Session<'_>, name: &str, step: &Step) -> Result<Effect, StepError> {
    match step {
        Step::ClearUnfinished(intent) => format::clear(session, intent),
        Step::Format(intent) => format::format(session, intent),
        Step::Encrypt { intent, encryption } => luks::encrypt(session, intent, encryption),
        Step::Open {
            device,
            mapping,
            luks_uuid,
            encryption,
        } => luks::open(session, name, device, mapping, luks_uuid, encryption),
        Step::FormatMapped { mapping, intent } => luks::format(session, mapping, intent),
        Step::Seed {
            place,
            filesystem,
            mount_point,
        } => seed::seed(session, name, place, filesystem, mount_point),
        Step::WriteFile { path, text } => files::write(session, path, text),
        Step::RemoveFile { path } => files::remove(session, path),
        Step::MakeMountPoint { path } => place::make(session, path),
        Step::Mount {
            place,
            uuid,
            filesystem,
            mount_point,
            options,
        } => {
            let what = place::What {
                name,
                place,
                uuid,
                filesystem,
            };
            place::mount(session, what, mount_point, options)
        }
        Step::SwapOn { place, uuid, options } => {
            let what = place::What {
                name,
                place,
                uuid,
                filesystem: "swap",
            };
            place::swap_on(session, what, options)
        }
        Step::GrowMapping { mapping, encryption } => luks::grow(session, mapping, encryption),
        Step::Grow {
            place,
            filesystem,
            mount_point,
            ..
        } => grow::grow(session, place, filesystem, mount_point),
        Step::Own { mount_point, owner } => place::own(session, mount_point, owner),
    }
}
