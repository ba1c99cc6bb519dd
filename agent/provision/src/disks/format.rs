//! Steps `format` and `clear-unfinished`: intent, audit, tool, audit, journal, in this order.

use virtfleet_agent_core::disks::{
    Content, DiskStep, FormatIntent, Probe,
    journal::{Entry, Evidence, Progress},
};
use virtfleet_agent_host::disks::FormatError;
use virtfleet_wire::settings::ProofKind;

use super::{
    session::Session,
    step_result::{Effect, StepError},
};

pub(super) fn format(session: &mut Session<'_>, intent: &FormatIntent) -> Result<Effect, StepError> {
    let intent = &since_cleared(session, intent)?;
    let word = DiskStep::Format(intent.clone()).word();
    session.store()?;
    // Probes again, with the device claimed exclusively. Nothing is written yet.
    let disk = session.provisioner.disks().claim(intent)?;
    session.at(&intent.name, "claimed");
    session.keep_for_undo(intent);
    let entry = session.entry(&intent.name).cloned();
    session.write(session.intended(intent, &intent.uuid, None, &intent.filesystem))?;
    session.at(&intent.name, "intended");
    session.use_approval(intent)?;
    session.audit("about-to", word, intent, before(session, intent).as_ref(), None)?;
    session.at(&intent.name, "audited");
    if let Err(error) = session.provisioner.disks().format(disk, intent) {
        return Err(failed(session, word, intent, entry, error));
    }
    session.at(&intent.name, "formatted");
    session.audit("done", word, intent, None, None)?;
    session.progress(&intent.name, Progress::Formatted)?;
    made(session, intent);
    Ok(Effect::Changed)
}

/// Records that a tool failed or was not started.
///
/// If nothing was written to the disk since the proof, or a new proof reads the whole disk and
/// finds it blank, the earlier entry of the journal is restored. Otherwise the entry stays
/// `Intended`, and the next run judges the disk's content. If another program wrote to the disk,
/// the entry says so.
pub(super) fn failed(
    session: &mut Session<'_>,
    word: &str,
    intent: &FormatIntent,
    before: Option<Entry>,
    error: FormatError,
) -> StepError {
    let others_wrote = matches!(error, FormatError::Changed { .. });
    let untouched = match &error {
        FormatError::Kind { .. } | FormatError::OtherDisk { .. } => true,
        FormatError::Verify { .. } => false,
        FormatError::Tool { untouched: true, .. } => true,
        FormatError::Tool { .. } | FormatError::Changed { .. } => session
            .provisioner
            .disks()
            .is_blank(&intent.device, intent.evidence.proof()),
    };
    let error = StepError::from(error);
    let recorded = session.audit("failed", word, intent, None, Some(&error));
    if let Err(StepError(reason)) = recorded {
        tracing::error!(
            disk = intent.name,
            reason,
            "the failed step is not in the audit record"
        );
    }
    if !untouched {
        let entry = session.entry(&intent.name).filter(|_| others_wrote).cloned();
        if let Some(entry) = entry
            && let Err(StepError(reason)) = session.write(Entry {
                others_wrote: true,
                ..entry
            })
        {
            return StepError(format!("{}; that is not in the journal: {reason}", error.0));
        }
        return error;
    }
    session.at(&intent.name, "failed");
    // A disk that was cleared in this run is blank. Before, it had an unfinished mkfs.
    let before = before.filter(|_| !session.cleared.contains_key(&intent.name));
    let restored = session
        .restore(&intent.name, before)
        .and_then(|()| session.audit("restored", "journal", intent, None, None));
    match restored {
        Ok(()) => error,
        Err(StepError(reason)) => StepError(format!("{}; the journal was not restored: {reason}", error.0)),
    }
}

/// Restores the zeros that the proof has read. The journal's entry stays `Intended`, which is still
/// true.
pub(super) fn clear(session: &mut Session<'_>, intent: &FormatIntent) -> Result<Effect, StepError> {
    let word = DiskStep::ClearUnfinished(intent.clone()).word();
    let entry = session
        .entry(&intent.name)
        .cloned()
        .ok_or_else(|| StepError::new("the journal has no entry of it"))?;
    let disk = session.provisioner.disks().claim_unfinished(intent, &entry)?;
    session.at(&intent.name, "claimed");
    session.audit("about-to", word, intent, before(session, intent).as_ref(), None)?;
    session.at(&intent.name, "audited");
    let blank = match session.provisioner.disks().clear(disk) {
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

/// The intent for a disk that was cleared in this run. It relies on the blankness proven since, and
/// not on the journal: an approval there was for the earlier content.
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
            "it was cleared, and only a part was read; the next run reads all of it, as `proof: full` requires",
        ));
    }
    intent.evidence = Evidence::Blank(blank.clone());
    Ok(intent)
}

/// What was found on the disk, if it was not blank.
pub(super) fn before(session: &Session<'_>, intent: &FormatIntent) -> Option<Content> {
    match session.observed.seen.probes.get(&intent.name) {
        Some(Probe::HasData(content)) => Some(content.clone()),
        _ => None,
    }
}

/// Records the disk's content after the step.
fn made(session: &mut Session<'_>, intent: &FormatIntent) {
    let content = Content {
        kind: intent.filesystem.clone(),
        uuid: Some(intent.uuid.clone()),
        ..Content::default()
    };
    session.made.push((intent.name.clone(), Probe::HasData(content)));
}
