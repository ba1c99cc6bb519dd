//! Applies the steps of all disks, in waves.
//!
//! ```text
//! wave:  make (format, open, copy), disk by disk ─▶ write (units), disk by disk
//!        ─▶ one daemon-reload ─▶ place (mount, own, grow), disk by disk
//! ```
//!
//! - systemd takes seconds to read units, so there is one daemon-reload for all disks.
//! - The steps `make` run before any unit of the wave is written: the next boot mounts a unit in
//!   `/etc` even if this run was interrupted.
//! - Disks that are only mounted come first, so that they do not wait for the others.
//! - A disk that is filled has a wave of its own, so that little time passes between its copy and
//!   its mount.
//! - The first step of a disk that fails ends the steps of this disk, and of the disks that would
//!   be mounted on it.

use std::collections::BTreeMap;

use virtfleet_agent_core::disks::{DiskPlan, DiskStep, Plan, units};

use super::{
    binds, clone, files, format, grow, luks, place, seed,
    session::Session,
    step_result::{Effect, StepError},
};

/// Result of one disk's steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DiskOutcome {
    /// The steps that were done, one word each.
    pub(super) done: Vec<String>,
    /// The step that failed, with its error.
    pub(super) error: Option<String>,
}

/// Part of a wave in which a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Make,
    Write,
    Place,
}

fn phase(step: &DiskStep) -> Phase {
    match step {
        DiskStep::ClearUnfinished(_)
        | DiskStep::EraseClone(_)
        | DiskStep::Format(_)
        | DiskStep::Encrypt { .. }
        | DiskStep::Open { .. }
        | DiskStep::FormatMapped { .. }
        | DiskStep::Seed { .. }
        | DiskStep::RecordUse { .. }
        | DiskStep::RecordBind { .. } => Phase::Make,
        DiskStep::WriteFile { .. } | DiskStep::RemoveFile { .. } => Phase::Write,
        DiskStep::MakeMountPoint { .. }
        | DiskStep::Mount { .. }
        | DiskStep::MakeDirectory { .. }
        | DiskStep::Bind { .. }
        | DiskStep::SwapOn { .. }
        | DiskStep::Remount { .. }
        | DiskStep::GrowMapping { .. }
        | DiskStep::Grow { .. }
        | DiskStep::Own { .. } => Phase::Place,
    }
}

/// Applies the plan's steps of its disks. Returns the result of each disk.
pub(super) fn disks(session: &mut Session<'_>, plan: &Plan) -> BTreeMap<String, DiskOutcome> {
    let mut outcomes = BTreeMap::new();
    for wave in waves(&plan.disks, session.provisioner.systemd) {
        for now in [Phase::Make, Phase::Write, Phase::Place] {
            if now == Phase::Place {
                session.reload();
            }
            for disk in &wave {
                let mut outcome = outcomes.remove(&disk.name).unwrap_or_default();
                steps(session, disk, now, &mut outcome);
                outcomes.insert(disk.name.clone(), outcome);
            }
        }
    }
    outcomes
}

/// Splits disks into waves: first the disks that are only mounted, then those that are made, then
/// those that are filled, each alone. A disk is filled from what lies under its mount point, so the
/// disk above it must be mounted before. A disk that is mounted on another one never comes before
/// it. Without systemd there is no daemon-reload, and each disk has a wave of its own, because the
/// planned texts of fstab build on each other.
fn waves(disks: &[DiskPlan], systemd: bool) -> Vec<Vec<&DiskPlan>> {
    if !systemd {
        return disks.iter().map(|disk| vec![disk]).collect();
    }
    let mut efforts: Vec<(&DiskPlan, Effort)> = Vec::new();
    for disk in disks {
        let is_above = |other: &DiskPlan| {
            let places = mounts_at(disk).zip(mounts_at(other));
            places.is_some_and(|(at, above)| is_below(at, above))
        };
        let above = efforts.iter().filter(|(other, _)| is_above(other));
        let effort = above.map(|(_, effort)| *effort).fold(effort(disk), Effort::max);
        efforts.push((disk, effort));
    }
    let of = |which: Effort| {
        let these = efforts.iter().filter(move |(_, effort)| *effort == which);
        these.map(|(disk, _)| *disk)
    };
    let mut waves: Vec<Vec<&DiskPlan>> = vec![of(Effort::Place).collect(), of(Effort::Make).collect()];
    waves.extend(of(Effort::Fill).map(|disk| vec![disk]));
    waves.retain(|wave| !wave.is_empty());
    waves
}

/// The step of a disk that takes longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Effort {
    Place,
    Make,
    Fill,
}

fn effort(disk: &DiskPlan) -> Effort {
    let of = |step: &DiskStep| match step {
        DiskStep::Seed { .. } | DiskStep::MakeDirectory { copy: true, .. } => Effort::Fill,
        step if step.destroys() => Effort::Make,
        _ => Effort::Place,
    };
    disk.steps.iter().map(of).max().unwrap_or(Effort::Place)
}

/// The mount point at which the steps mount a disk.
fn mounts_at(disk: &DiskPlan) -> Option<&str> {
    disk.steps.iter().find_map(|step| match step {
        DiskStep::Mount { mount_point, .. } => Some(mount_point.as_str()),
        _ => None,
    })
}

/// True if `path` lies below `above`.
pub(super) fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// Runs the steps of a disk that belong to this phase.
fn steps(session: &mut Session<'_>, plan: &DiskPlan, now: Phase, outcome: &mut DiskOutcome) {
    // Checked before the unit exists, because the next boot would start it.
    if now == Phase::Write
        && outcome.error.is_none()
        && let Some(at) = mounts_at(plan)
        && let Err(StepError(reason)) = place::may_be_mounted_on(session, &plan.name, at)
    {
        tracing::error!(disk = plan.name, reason, "not mounted");
        outcome.error = Some(format!("mount: {reason}"));
        session.failed.push((at.to_owned(), plan.name.clone()));
        session.fstab_stale |= plan.steps.iter().any(writes_fstab);
    }
    // A place that fails ends only its own steps.
    let mut failed_places: Vec<(&str, String)> = Vec::new();
    for (index, step) in plan.steps.iter().enumerate() {
        if outcome.error.is_some() {
            break;
        }
        let has_failed = |path: &str| failed_places.iter().any(|(failed, _)| *failed == path);
        if phase(step) != now || place_of(step).is_some_and(has_failed) {
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
                if let Some(path) = place_of(step) {
                    failed_places.push((path, format!("{word}: {reason}")));
                    session.at(&plan.name, &format!("after {word}"));
                    continue;
                }
                outcome.error = Some(format!("{word}: {reason}"));
                session
                    .failed
                    .extend(mounts_at(plan).map(|at| (at.to_owned(), plan.name.clone())));
                session.fstab_stale |= plan.steps[index..].iter().any(writes_fstab);
            }
        }
        session.at(&plan.name, &format!("after {word}"));
    }
    if !failed_places.is_empty() {
        let errors = failed_places.into_iter().map(|(_, error)| error);
        let errors: Vec<String> = outcome.error.take().into_iter().chain(errors).collect();
        outcome.error = Some(errors.join("; "));
    }
}

/// The place that a step belongs to, of several on one disk.
fn place_of(step: &DiskStep) -> Option<&str> {
    match step {
        DiskStep::MakeDirectory { path, .. } | DiskStep::Bind { path, .. } => Some(path),
        _ => None,
    }
}

fn writes_fstab(step: &DiskStep) -> bool {
    matches!(step, DiskStep::WriteFile { path, .. } if path == units::FSTAB)
}

/// Why a disk is not mounted: it lies on another disk of the plan that failed. It would be mounted
/// on the disk below that one, and be hidden later.
fn below_failed(session: &Session<'_>, plan: &DiskPlan) -> Option<StepError> {
    let path = mounts_at(plan)?;
    let above = |(at, _): &&(String, String)| is_below(path, at) && !session.mounted.contains(at);
    let (at, name) = session.failed.iter().find(above)?;
    Some(StepError::new(format!(
        "{path} lies on the disk {name:?}, which failed and is not mounted at {at}; put that one right first"
    )))
}

fn one(session: &mut Session<'_>, name: &str, step: &DiskStep) -> Result<Effect, StepError> {
    match step {
        DiskStep::ClearUnfinished(intent) => format::clear(session, intent),
        DiskStep::EraseClone(intent) => clone::erase(session, intent),
        DiskStep::Format(intent) => format::format(session, intent),
        DiskStep::Encrypt { intent, encryption } => luks::encrypt(session, intent, encryption),
        DiskStep::Open {
            device,
            mapping,
            luks_uuid,
            encryption,
        } => luks::open(session, name, device, mapping, luks_uuid, encryption),
        DiskStep::FormatMapped { mapping, intent } => luks::format(session, mapping, intent),
        DiskStep::Seed {
            place,
            filesystem,
            mount_point,
        } => seed::seed(session, name, place, filesystem, mount_point),
        DiskStep::WriteFile { path, text } => files::write(session, path, text),
        DiskStep::RemoveFile { path } => files::remove(session, path),
        DiskStep::MakeMountPoint { path } => place::make(session, path),
        DiskStep::Mount {
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
        DiskStep::MakeDirectory { .. } | DiskStep::Bind { .. } | DiskStep::RecordBind { .. } => {
            binds::one(session, name, step)
        }
        DiskStep::SwapOn { place, uuid, options } => {
            let what = place::What {
                name,
                place,
                uuid,
                filesystem: "swap",
            };
            place::swap_on(session, what, options)
        }
        DiskStep::RecordUse {
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
        DiskStep::Remount {
            place,
            mount_point,
            options,
        } => place::remount(session, place, mount_point, options),
        DiskStep::GrowMapping { mapping, encryption } => luks::grow(session, mapping, encryption),
        DiskStep::Grow {
            place,
            filesystem,
            mount_point,
            from,
            ..
        } => grow::grow(session, place, filesystem, mount_point, *from),
        DiskStep::Own { mount_point, owner } => place::own(session, mount_point, owner),
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::disks::{
        DevNumber, DeviceId, FormatIntent, Key, journal::Evidence, plan::Place,
    };

    use super::*;

    fn id() -> DeviceId {
        DeviceId {
            name: "vdb".into(),
            number: DevNumber { major: 1, minor: 2 },
            diskseq: None,
            size: 1 << 30,
            serial: None,
            partition: None,
        }
    }

    fn disk(name: &str, at: &str, made: bool, seeded: bool) -> DiskPlan {
        let place = Place::Disk(id());
        let mut steps = Vec::new();
        if made {
            steps.push(DiskStep::FormatMapped {
                mapping: String::new(),
                intent: FormatIntent {
                    name: name.into(),
                    key: Key::Serial(name.into()),
                    device: id(),
                    evidence: Evidence::Found,
                    filesystem: "ext4".into(),
                    uuid: String::new(),
                    arguments: Vec::new(),
                },
            });
        }
        if seeded {
            steps.push(DiskStep::Seed {
                place: place.clone(),
                filesystem: "ext4".into(),
                mount_point: at.into(),
            });
        }
        steps.push(DiskStep::Mount {
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
    fn mounted_disks_come_first_and_filled_disks_alone() {
        let disks = [
            disk("a", "/srv/a", true, true),
            disk("b", "/srv/b", true, false),
            disk("c", "/srv/c", true, false),
            disk("below", "/srv/a/below", false, false),
            disk("old", "/srv/old", false, false),
            disk("filled", "/srv/old/filled", true, true),
            disk("beside", "/srv/ab", true, false),
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
            [
                vec!["old"],
                vec!["b", "c", "beside"],
                vec!["a"],
                vec!["below"],
                vec!["filled"]
            ]
        );
        assert_eq!(names(false).len(), disks.len());
        assert!(waves(&[], true).is_empty());
    }
}
