//! Steps `write-file` and `remove-file`: units, drop-ins, fstab. A file without our mark is never
//! changed.

use virtfleet_agent_core::disks::{DiskStep, Plan, units};
use virtfleet_agent_host::{Roots, is_present, read_text, remove_durably, write_atomic};

use super::{
    session::Session,
    step_result::{Effect, StepError},
    unread,
};

const MAX_FILE_BYTES: usize = 1 << 20;

/// Runs the steps that belong to no disk: the start gate's files. Returns true if the gate's unit
/// was written and systemd did not know it before.
pub(super) fn common(session: &mut Session<'_>, plan: &Plan) -> bool {
    let mut gate_written = false;
    for step in &plan.common {
        session.at("-", &format!("before {}", step.word()));
        let effect = match step {
            DiskStep::WriteFile { path, text } => write(session, path, text),
            DiskStep::RemoveFile { path } => remove(session, path),
            _ => Err(StepError::new("it belongs to a disk")),
        };
        match effect {
            Ok(Effect::Changed) => {
                session.changed = true;
                gate_written |= matches!(step, DiskStep::WriteFile { path, .. } if path.ends_with(&format!("/{}", units::GATE)));
            }
            Ok(Effect::Unchanged) => {}
            Err(StepError(reason)) => session.failures.push(format!("{}: {reason}", step.word())),
        }
        session.at("-", &format!("after {}", step.word()));
    }
    gate_written
}

/// Writes a file at a path that is reserved for us, unless a file without our mark is there.
pub(super) fn put(roots: &Roots, path: &str, text: &str) -> Result<Effect, StepError> {
    let file = roots.root(path);
    match read_text(&file, MAX_FILE_BYTES) {
        Ok(before) if before == text => return Ok(Effect::Unchanged),
        Ok(before) if path != units::FSTAB && !ours(&before) => return Err(foreign(path)),
        Err(error) if is_present(&file) => {
            return Err(StepError::new(format!(
                "{path}: {error}; it is not ours, and stays"
            )));
        }
        Ok(_) | Err(_) => {}
    }
    if path != units::FSTAB {
        unread::mark(roots)?;
    }
    write_atomic(&file, text.as_bytes(), 0o644, None)?;
    Ok(Effect::Changed)
}

pub(super) fn write(session: &mut Session<'_>, path: &str, text: &str) -> Result<Effect, StepError> {
    if path == units::FSTAB && session.fstab_stale {
        tracing::info!(
            "{path} is written by the next run: the planned text has the line of a disk that failed"
        );
        return Ok(Effect::Unchanged);
    }
    if path == units::FSTAB
        && let Ok(before) = read_text(&session.provisioner.roots.root(path), MAX_FILE_BYTES)
        && before != text
        // Everything but our own lines must be as the plan observed it.
        && session.observed.seen.files.get(path).is_some_and(|seen| *seen != before)
    {
        return still_ours(session, path, &before, text);
    }
    let effect = put(session.provisioner.roots, path, text)?;
    session.unread |= effect == Effect::Changed;
    Ok(effect)
}

/// fstab has changed since the plan. If our own step for another disk changed it, the line is added
/// to the current content.
fn still_ours(session: &mut Session<'_>, path: &str, before: &str, text: &str) -> Result<Effect, StepError> {
    let planned = session.observed.seen.files.get(path).cloned().unwrap_or_default();
    let has = |text: &str, line: &str| text.lines().any(|other| other == line);
    let fresh = text
        .lines()
        .filter(|line| !has(&planned, line) && !has(before, line));
    let gone = planned.lines().any(|line| !has(text, line));
    if gone {
        return Err(StepError::new(format!("{path} has changed; make a new plan")));
    }
    let mut joined = before.to_owned();
    if !joined.is_empty() && !joined.ends_with('\n') {
        joined.push('\n');
    }
    for line in fresh {
        joined.push_str(line);
        joined.push('\n');
    }
    write_atomic(
        &session.provisioner.roots.root(path),
        joined.as_bytes(),
        0o644,
        None,
    )?;
    session.unread = true;
    Ok(Effect::Changed)
}

pub(super) fn remove(session: &mut Session<'_>, path: &str) -> Result<Effect, StepError> {
    let file = session.provisioner.roots.root(path);
    match read_text(&file, MAX_FILE_BYTES) {
        Ok(text) if !ours(&text) => return Err(foreign(path)),
        Ok(_) => {}
        Err(_) if !is_present(&file) => return Ok(Effect::Unchanged),
        Err(error) => {
            return Err(StepError::new(format!(
                "{path}: {error}; it is not ours, and stays"
            )));
        }
    }
    unread::mark(session.provisioner.roots)?;
    remove_durably(&file)?;
    session.unread = true;
    Ok(Effect::Changed)
}

fn ours(text: &str) -> bool {
    units::disk_of(text).is_some() || units::is_gates(text)
}

fn foreign(path: &str) -> StepError {
    StepError::new(format!(
        "{path} is there and not ours; take it away, or choose another mount point"
    ))
}
