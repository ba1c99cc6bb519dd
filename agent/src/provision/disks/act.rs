//! Does the steps of all disks, in waves.
//!
//! ```text
//! wave:  make (format, open, copy), disk by disk ─▶ write (units), disk by disk ─▶ one daemon-reload ─▶ place (mount, own, grow), disk by disk
//! ```
//!
//! Reading units takes systemd seconds, so it is asked once for all disks. What is made is made before any unit of the wave is written: a unit in
//! `/etc` is mounted by the next boot, whatever became of this pass. The first step that fails ends its disk's, and those of the disks that would be mounted
//! on it.

use std::collections::BTreeMap;

use virtfleet_agent_core::disks::{DiskPlan, Plan, Step, units};

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

/// When in its wave a step is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Make,
    Write,
    Place,
}

fn phase(step: &Step) -> Phase {
    match step {
        Step::ClearUnfinished(_)
        | Step::Format(_)
        | Step::Encrypt { .. }
        | Step::Open { .. }
        | Step::FormatMapped { .. }
        | Step::Seed { .. }
        | Step::Remember { .. } => Phase::Make,
        Step::WriteFile { .. } | Step::RemoveFile { .. } => Phase::Write,
        Step::MakeMountPoint { .. }
        | Step::Mount { .. }
        | Step::SwapOn { .. }
        | Step::Remount { .. }
        | Step::GrowMapping { .. }
        | Step::Grow { .. }
        | Step::Own { .. } => Phase::Place,
    }
}

/// Does what the plan has for its disks; what came of each.
pub(super) fn disks(session: &mut Session<'_>, plan: &Plan) -> BTreeMap<String, Outcome> {
    let mut outcomes = BTreeMap::new();
    for wave in waves(&plan.disks, session.engine.systemd) {
        for now in [Phase::Make, Phase::Write, Phase::Place] {
            if now == Phase::Place {
                session.reload();
            }
            for disk in wave {
                let mut outcome = outcomes.remove(&disk.name).unwrap_or_default();
                steps(session, disk, now, &mut outcome);
                outcomes.insert(disk.name.clone(), outcome);
            }
        }
    }
    outcomes
}

/// A disk is filled from what lies under its mount point, so the one that will be mounted above must be there first, and begins a wave of its own.
/// Without systemd there is nothing to read again, and each disk is done with before the next: the planned texts of fstab build on each other.
fn waves(mut disks: &[DiskPlan], systemd: bool) -> Vec<&[DiskPlan]> {
    let mut waves = Vec::new();
    while !disks.is_empty() {
        let alone = |at: &usize| !systemd || seeds_below(&disks[*at], &disks[..*at]);
        let end = (1..disks.len()).find(alone).unwrap_or(disks.len());
        let (wave, rest) = disks.split_at(end);
        waves.push(wave);
        disks = rest;
    }
    waves
}

fn seeds_below(disk: &DiskPlan, before: &[DiskPlan]) -> bool {
    let from = disk.steps.iter().find_map(|step| match step {
        Step::Seed { mount_point, .. } => Some(mount_point),
        _ => None,
    });
    from.is_some_and(|from| before.iter().filter_map(mounts_at).any(|at| is_below(from, at)))
}

/// Where a disk is mounted by its steps.
fn mounts_at(disk: &DiskPlan) -> Option<&str> {
    disk.steps.iter().find_map(|step| match step {
        Step::Mount { mount_point, .. } => Some(mount_point.as_str()),
        _ => None,
    })
}

/// Whether a path lies in another.
pub(super) fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// The steps that a disk has in this phase.
fn steps(session: &mut Session<'_>, plan: &DiskPlan, now: Phase, outcome: &mut Outcome) {
    for (index, step) in plan.steps.iter().enumerate() {
        if outcome.error.is_some() {
            return;
        }
        if phase(step) != now {
            continue;
        }
        let word = step.word();
        let result = below_failed(session, plan).map_or(Ok(()), Err).and_then(|()| {
            session.at(&plan.name, &format!("before {word}"));
            one(session, &plan.name, step)
        });
        match result {
            Ok(Effect::Changed) => {
                tracing::info!(disk = plan.name, step = word, "done");
                session.changed = true;
                outcome.done.push(word.to_owned());
            }
            Ok(Effect::Unchanged) => {}
            Err(StepError(reason)) => {
                tracing::error!(disk = plan.name, step = word, reason, "failed");
                outcome.error = Some(format!("{word}: {reason}"));
                session
                    .failed
                    .extend(mounts_at(plan).map(|at| (at.to_owned(), plan.name.clone())));
                let unwritten =
                    |step: &Step| matches!(step, Step::WriteFile { path, .. } if path == units::FSTAB);
                session.fstab_stale |= plan.steps[index..].iter().any(unwritten);
            }
        }
        session.at(&plan.name, &format!("after {word}"));
    }
}

/// Why a disk is not mounted on another that should have been mounted before and is not: it would lie on the disk below that, and be hidden later.
fn below_failed(session: &Session<'_>, plan: &DiskPlan) -> Option<StepError> {
    let path = mounts_at(plan)?;
    let above = |(at, _): &&(String, String)| is_below(path, at) && !session.mounted.contains(at);
    let (at, name) = session.failed.iter().find(above)?;
    Some(StepError::new(format!(
        "{path} lies on the disk {name:?}, which failed and is not mounted at {at}; put that one right first"
    )))
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
        Step::Remember {
            place,
            uuid,
            filesystem,
        } => {
            let what = place::What {
                name,
                place,
                uuid,
                filesystem,
            };
            place::remember(session, what)
        }
        Step::Remount {
            place,
            mount_point,
            options,
        } => place::remount(session, place, mount_point, options),
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

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::disks::{DevNumber, DeviceId, plan::Place};

    use super::*;

    fn disk(name: &str, at: &str, seeded: bool) -> DiskPlan {
        let place = Place::Disk(DeviceId {
            name: "vdb".into(),
            number: DevNumber { major: 1, minor: 2 },
            diskseq: None,
            size: 1 << 30,
            serial: None,
        });
        let mut steps = Vec::new();
        if seeded {
            steps.push(Step::Seed {
                place: place.clone(),
                filesystem: "ext4".into(),
                mount_point: at.into(),
            });
        }
        steps.push(Step::Mount {
            place,
            uuid: String::new(),
            filesystem: "ext4".into(),
            mount_point: at.into(),
            options: Vec::new(),
        });
        DiskPlan {
            name: name.into(),
            key: None,
            device: None,
            steps,
            refusals: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_wave_ends_where_a_disk_is_filled_from_one_that_it_mounts() {
        let disks = [
            disk("a", "/srv/a", true),
            disk("b", "/srv/b", false),
            disk("below", "/srv/a/below", false),
            disk("filled", "/srv/a/filled", true),
            disk("beside", "/srv/ab", true),
            disk("deeper", "/srv/a/filled/deeper", true),
        ];
        let names = |systemd| -> Vec<Vec<&str>> {
            let waves = waves(&disks, systemd);
            let names = waves
                .iter()
                .map(|wave| wave.iter().map(|disk| disk.name.as_str()).collect());
            names.collect()
        };
        assert_eq!(
            names(true),
            [vec!["a", "b", "below"], vec!["filled", "beside"], vec!["deeper"]]
        );
        assert_eq!(names(false).len(), disks.len());
        assert!(waves(&[], true).is_empty());
    }
}
