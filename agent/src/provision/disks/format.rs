//! Steps `format` and `clear-unfinished`: intent, audit, tool, audit, journal, in this order.

use virtfleet_agent_core::disks::{
    Content, FormatIntent, Probe, Step,
    journal::{Evidence, Progress},
};
use virtfleet_wire::settings::ProofKind;

use super::session::{Effect, Session, StepError};

pub(super) fn format(session: &mut Session<'_>, intent: &FormatIntent) -> Result<Effect, StepError> {
    let intent = &since_cleared(session, intent)?;
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
    let blank = match session.engine.disks().clear(disk) {
        Ok(blank) => blank,
        Err(error) => {
            let error = StepError::from(error);
            session.audit("failed", word, intent, None, Some(&error))?;
            return Err(error);
        }
    };
    session.cleared.insert(intent.name.clone(), blank);
    session.at(&intent.name, "cleared");
    session.audit("done", word, intent, None, None)?;
    Ok(Effect::Changed)
}

/// The intent of a disk that was cleared in this pass rests on the blankness that was found after that, and on nothing that the journal has: an approval
/// was of what the disk held before.
pub(super) fn since_cleared(session: &Session<'_>, intent: &FormatIntent) -> Result<FormatIntent, StepError> {
    let mut intent = intent.clone();
    let Some(blank) = session.cleared.get(&intent.name) else {
        return Ok(intent);
    };
    let asked = session
        .observed
        .wanted
        .iter()
        .find(|wanted| wanted.name == intent.name);
    if asked.is_some_and(|wanted| wanted.proof == ProofKind::Full) && blank.proof != ProofKind::Full {
        return Err(StepError::new(
            "it was cleared, and read in part; the next pass reads all of it, as `proof: full` asks",
        ));
    }
    intent.evidence = Evidence::Blank(blank.clone());
    Ok(intent)
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
