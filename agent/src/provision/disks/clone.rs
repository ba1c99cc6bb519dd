//! Disks declared with `content: image-clone`: what is observed of them, and the step `erase-clone`.

use std::collections::BTreeMap;

use virtfleet_agent_core::disks::{
    Device, Probe, Step, Use, Wanted,
    clone::{CloneState, EraseIntent, EraseRecord, RECORD_FORMAT},
    journal::AuditRecord,
};
use virtfleet_wire::settings::{DiskContent, ProofKind};

use super::{
    pass::Engine,
    session::{Effect, Session, StepError},
};
use crate::host::{JournalStore, clock};

/// Partition tables, as blkid names them.
const TABLES: [&str; 3] = ["gpt", "PMBR", "dos"];
/// Progress of an erasure is logged, and a fail point reached, at each of so many parts.
const PARTS: u64 = 10;

/// Judges a disk as a clone when it is declared as one, and it has a partition table or the journal has an erasure of it.
pub(super) fn observe(
    engine: &Engine<'_>,
    wanted: &Wanted,
    device: &Device,
    probe: &Probe,
    clones: &mut BTreeMap<String, CloneState>,
) {
    if wanted.content != DiskContent::ImageClone {
        return;
    }
    let store = JournalStore::existing(engine.roots).ok().flatten();
    let begun = store.and_then(|store| store.erasing(&wanted.name));
    let partitioned = device.uses.iter().any(|used| matches!(used, Use::Partition(_)));
    let has_table = match probe {
        Probe::HasData(content) => {
            let mut kinds = std::iter::once(&content.kind).chain(&content.also);
            kinds.any(|kind| TABLES.contains(&kind.as_str()))
        }
        Probe::Blank(_) | Probe::Unknown(_) => false,
    };
    if !partitioned && !has_table && begun.is_none() {
        return;
    }
    if let Some(state) = engine.disks().look_clone(device, wanted.proof, begun) {
        clones.insert(wanted.name.clone(), state);
    }
}

/// Erases an untouched clone: record, audit, zeros, proof of blankness, audit, in this order.
pub(super) fn erase(session: &mut Session<'_>, intent: &EraseIntent) -> Result<Effect, StepError> {
    let name = &intent.name;
    let kind = session
        .observed
        .wanted
        .iter()
        .find(|wanted| wanted.name == *name)
        .map_or(ProofKind::Full, |wanted| wanted.proof);
    let begun = session.store()?.erasing(name);
    let claimed = session.engine.disks().claim_clone(intent, kind, begun)?;
    session.at(name, "claimed");
    if !intent.resume {
        session.keep_ends(name, &intent.device);
        let record = EraseRecord {
            format: RECORD_FORMAT,
            name: name.clone(),
            device: intent.device.clone(),
            proof: claimed.proof().clone(),
            at_ns: clock().realtime_ns,
        };
        session.store()?.write_erasing(&record, claimed.fingerprint())?;
    }
    session.at(name, "recorded");
    audit(session, intent, "about-to", None)?;
    session.at(name, "audited");
    let (witness, disk) = (session.engine.witness, name.clone());
    let mut part = 0;
    let mut progress = |done: u64, all: u64| {
        let now = done.saturating_mul(PARTS) / all.max(1);
        if now > part {
            part = now;
            tracing::info!(
                disk,
                percent = now * 100 / PARTS,
                "erasing the clone of the OS image"
            );
            witness.at(&format!("{disk} erasing {now}"));
        }
    };
    let blank = match session.engine.disks().erase_clone(claimed, &mut progress) {
        Ok(blank) => blank,
        Err(error) => {
            let error = StepError::from(error);
            audit(session, intent, "failed", Some(&error))?;
            return Err(error);
        }
    };
    session.at(name, "erased");
    session.cleared.insert(name.clone(), blank.clone());
    session.made.push((name.clone(), Probe::Blank(blank)));
    audit(session, intent, "done", None)?;
    session.store()?.remove_erasing(name)?;
    session.at(name, "forgotten");
    Ok(Effect::Changed)
}

fn audit(
    session: &Session<'_>,
    intent: &EraseIntent,
    moment: &str,
    error: Option<&StepError>,
) -> Result<(), StepError> {
    let record = AuditRecord {
        at_ns: clock().realtime_ns,
        boot_id: session.engine.boot_id.to_owned(),
        name: intent.name.clone(),
        moment: moment.to_owned(),
        step: Step::EraseClone(intent.clone()).word().to_owned(),
        device: intent.device.clone(),
        evidence: Some(EraseRecord::evidence(&intent.proof)),
        content: None,
        uuid: None,
        tool: format!("BLKZEROOUT of {} bytes", intent.proof.image_bytes),
        error: error.map(|error| error.0.clone()),
    };
    Ok(session.store()?.audit(&record)?)
}
