//! Steps `format` and `clear-unfinished`: intent, audit, tool, audit, journal, in this order.

use virtfleet_agent_core::disks::{Content, FormatIntent, Probe, Step, journal::Progress};

use super::session::{Effect, Session, StepError};

pub(super) fn format(session: &mut Session<'_>, intent: &FormatIntent) -> Result<Effect, StepError> {
    let word = Step::Format(intent.clone()).word();
    session.store()?;
    // The second look, under the lock and exclusively; nothing is written yet.
    let disk = session.engine.disks().claim(intent)?;
    session.at(&intent.name, "claimed");
    session.write(session.intended(intent, &intent.uuid, None, &intent.filesystem))?;
    session.at(&intent.name, "intended");
    session.use_approval(intent)?;
    session.audit("about-to", word, intent, before(session, intent).as_ref(), None)?;
    session.at(&intent.name, "audited");
    if let Err(error) = session.engine.disks().format(disk, intent) {
        let error = StepError::from(error);
        session.audit("failed", word, intent, None, Some(&error))?;
        return Err(error);
    }
    session.at(&intent.name, "formatted");
    session.audit("done", word, intent, None, None)?;
    session.progress(&intent.name, Progress::Formatted)?;
    made(session, intent);
    Ok(Effect::Changed)
}

/// Puts back the zeros that the proof saw. The journal's entry stays `Intended`, which is what it is.
pub(super) fn clear(session: &mut Session<'_>, intent: &FormatIntent) -> Result<Effect, StepError> {
    let word = Step::ClearUnfinished(intent.clone()).word();
    let entry = session
        .entry(&intent.name)
        .cloned()
        .ok_or_else(|| StepError::new("the journal has no entry of it"))?;
    let disk = session.engine.disks().claim_unfinished(intent, &entry)?;
    session.at(&intent.name, "claimed");
    session.audit("about-to", word, intent, before(session, intent).as_ref(), None)?;
    session.at(&intent.name, "audited");
    if let Err(error) = session.engine.disks().clear(disk) {
        let error = StepError::from(error);
        session.audit("failed", word, intent, None, Some(&error))?;
        return Err(error);
    }
    session.at(&intent.name, "cleared");
    session.audit("done", word, intent, None, None)?;
    Ok(Effect::Changed)
}

/// What was found on the disk, when it was not blank.
pub(super) fn before(session: &Session<'_>, intent: &FormatIntent) -> Option<Content> {
    match session.observed.seen.probes.get(&intent.name) {
        Some(Probe::HasData(content)) => Some(content.clone()),
        _ => None,
    }
}

/// What is on it now.
fn made(session: &mut Session<'_>, intent: &FormatIntent) {
    let content = Content {
        kind: intent.filesystem.clone(),
        uuid: Some(intent.uuid.clone()),
        ..Content::default()
    };
    session.made.push((intent.name.clone(), Probe::HasData(content)));
}
