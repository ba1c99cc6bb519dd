//! Disks declared with `content: image-clone`: what is observed of them, and the step
//! `erase-clone`.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use virtfleet_agent_core::disks::{
    Device, DiskStep, Doubt, Probe, Use, Wanted,
    clone::{CloneState, EraseIntent, EraseRecord, RECORD_FORMAT},
    journal::AuditRecord,
    size,
};
use virtfleet_agent_host::{
    JournalStore, clock,
    disks::{Disks, UnfinishedErasure},
};
use virtfleet_wire::settings::{DiskContent, ProofKind};

use super::{
    probes::{PROBES_AT_ONCE, PROGRESS_INTERVAL},
    provisioner::DiskProvisioner,
    session::Session,
    step_result::{Effect, StepError},
};

/// Partition tables, by their blkid type.
const TABLES: [&str; 3] = ["gpt", "PMBR", "dos"];
/// Number of parts of an erasure. After each part the progress is logged and a fail point is
/// reached.
const PROGRESS_PARTS: u64 = 10;

/// Checks disks for untouched clones: those that are declared as clones and have a partition table,
/// or an erasure in the journal. At most [`PROBES_AT_ONCE`] at a time. Returns the results by the
/// disk's name.
pub(super) fn observe(
    provisioner: &DiskProvisioner<'_>,
    looked_at: &[(&Wanted, &Device, Probe)],
) -> BTreeMap<String, CloneState> {
    let store = JournalStore::existing(provisioner.roots).ok().flatten();
    let mut orders = Vec::new();
    for (wanted, device, probe) in looked_at {
        let begun = store.as_ref().and_then(|store| store.erasing(&wanted.name));
        let partitioned = device.uses.iter().any(|used| matches!(used, Use::Partition(_)));
        if wanted.content == DiskContent::ImageClone && (partitioned || has_table(probe) || begun.is_some()) {
            orders.push((*wanted, *device, begun));
        }
    }
    let disks = provisioner.disks();
    let mut clones = BTreeMap::new();
    for some in orders.chunks(PROBES_AT_ONCE) {
        thread::scope(|scope| {
            let threads: Vec<_> = some
                .iter()
                .map(|(wanted, device, begun)| {
                    let look = move || look(disks, wanted, device, begun.clone());
                    (&wanted.name, scope.spawn(look))
                })
                .collect();
            for (name, thread) in threads {
                let state = thread.join().unwrap_or_else(|_| {
                    Some(CloneState::Unknown(Doubt {
                        reason: "the comparison with the root disk panicked".to_owned(),
                        passing: true,
                    }))
                });
                clones.extend(state.map(|state| (name.clone(), state)));
            }
        });
    }
    clones
}

fn look(
    disks: Disks<'_>,
    wanted: &Wanted,
    device: &Device,
    begun: Option<UnfinishedErasure>,
) -> Option<CloneState> {
    let since = Instant::now();
    let mut told = since;
    let mut progress = |done: u64| {
        if told.elapsed() >= PROGRESS_INTERVAL {
            told = Instant::now();
            tracing::info!(
                disk = wanted.name,
                device = device.id.name,
                "read {} of it and of the root disk to prove that it is an untouched clone",
                size::words(done),
            );
        }
    };
    disks.probe_clone(device, wanted.proof, budget(wanted), begun, &mut progress)
}

fn budget(wanted: &Wanted) -> Duration {
    Duration::from_secs(wanted.proof_seconds.into())
}

fn has_table(probe: &Probe) -> bool {
    match probe {
        Probe::HasData(content) => {
            let mut kinds = std::iter::once(&content.kind).chain(&content.also);
            kinds.any(|kind| TABLES.contains(&kind.as_str()))
        }
        Probe::Blank(_) | Probe::Unknown(_) => false,
    }
}

/// Erases an untouched clone, in this order: journal, audit, zeros, proof of blankness, audit.
pub(super) fn erase(session: &mut Session<'_>, intent: &EraseIntent) -> Result<Effect, StepError> {
    let name = &intent.name;
    let mut all = session.observed.wanted.iter();
    let wanted = all.find(|wanted| wanted.name == *name);
    let kind = wanted.map_or(ProofKind::Full, |wanted| wanted.proof);
    let budget = wanted.map_or(Duration::ZERO, budget);
    let begun = session.store()?.erasing(name);
    let claimed = session
        .provisioner
        .disks()
        .claim_clone(intent, kind, budget, begun)?;
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
    let (fail_points, disk) = (session.provisioner.fail_points, name.clone());
    let mut part = 0;
    let mut progress = |done: u64, all: u64| {
        let now = done.saturating_mul(PROGRESS_PARTS) / all.max(1);
        if now > part {
            part = now;
            tracing::info!(
                disk,
                percent = now * 100 / PROGRESS_PARTS,
                "erasing the clone of the OS image"
            );
            fail_points.at(&format!("{disk} erasing {now}"));
        }
    };
    let blank = match session.provisioner.disks().erase_clone(claimed, &mut progress) {
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
        boot_id: session.provisioner.boot_id.to_owned(),
        name: intent.name.clone(),
        moment: moment.to_owned(),
        step: DiskStep::EraseClone(intent.clone()).word().to_owned(),
        device: intent.device.clone(),
        evidence: Some(EraseRecord::evidence(&intent.proof)),
        content: None,
        uuid: None,
        tool: format!("BLKZEROOUT of {} bytes", intent.proof.image_bytes),
        error: error.map(|error| error.0.clone()),
    };
    Ok(session.store()?.audit(&record)?)
}
