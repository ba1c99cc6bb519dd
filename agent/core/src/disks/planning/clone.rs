//! A disk declared with `content: image-clone` that is not blank. The agent erases it if it is
//! proven to be an untouched clone; otherwise it refuses.

use virtfleet_wire::settings::DiskContent;

use super::{
    super::{
        clone::{CloneProof, CloneState, Deviation, EraseIntent, EraseRecord},
        device::Use,
        journal::{Entry, Progress},
        plan::{DiskStep, Refusal, RefusalKind},
        size,
    },
    case::Case,
    content::{Verdict, former, unreadable},
};

/// Maximum number of deviations in the message. The facts contain all of them.
const MAX_NAMED_DEVIATIONS: usize = 3;

impl<'a> Case<'a> {
    /// Result of the clone check; `None` for a disk that is not declared as a clone.
    pub(super) fn clone_state(&self) -> Option<&'a CloneState> {
        let seen = self.seen;
        (self.disk.content == DiskContent::ImageClone)
            .then(|| seen.clones.get(&self.disk.name))
            .flatten()
    }
}

/// Verdict for a disk that is declared as a clone; `None` for any other.
pub(super) fn judge(case: &Case<'_>, notes: &mut Vec<String>) -> Option<Result<Verdict, Refusal>> {
    Some(match case.clone_state()? {
        CloneState::Unknown(doubt) => Err(unreadable(case, &doubt.reason, doubt.passing)),
        CloneState::Refused { deviations } => Err(refused(case, deviations)),
        CloneState::Untouched(proof) | CloneState::Interrupted { proof, .. } => erase(case, proof, notes),
    })
}

fn erase(case: &Case<'_>, proof: &CloneProof, notes: &mut Vec<String>) -> Result<Verdict, Refusal> {
    if let Some(entry) = case
        .entry
        .or_else(|| former(case))
        .filter(|entry| was_made(entry))
    {
        return Err(replaced(case, entry));
    }
    // The partitions alone do not count as a use.
    if case
        .device
        .uses
        .iter()
        .any(|used| !matches!(used, Use::Partition(_)))
        || case.disk.shared
    {
        return Err(unreadable(case, "it is in use", true));
    }
    if let Some(refusal) = partly_proven(case, proof) {
        return Err(refusal);
    }
    for partition in &proof.partitions {
        notes.push(format!("partition {}: {}", partition.number, partition.because));
    }
    notes.push(proof.words());
    notes.push(format!(
        "the first boot of {} was at or before {} s since 1970, according to {}",
        proof.root, proof.first_boot.at, proof.first_boot.source
    ));
    Ok(Verdict::Make {
        evidence: EraseRecord::evidence(proof),
        clear: false,
    })
}

/// The step that erases the disk, if it may be erased.
pub(super) fn step(case: &Case<'_>) -> Option<DiskStep> {
    let (proof, resume) = match case.clone_state()? {
        CloneState::Untouched(proof) => (proof, false),
        CloneState::Interrupted { proof, .. } => (proof, true),
        CloneState::Refused { .. } | CloneState::Unknown(_) => return None,
    };
    Some(DiskStep::EraseClone(EraseIntent {
        name: case.disk.name.clone(),
        key: case.key.clone(),
        device: case.id().clone(),
        proof: proof.clone(),
        resume,
    }))
}

/// Refusal of a large clone that was read only in part and is not declared as `new`.
fn partly_proven(case: &Case<'_>, proof: &CloneProof) -> Option<Refusal> {
    let disk = case.disk;
    if proof.is_whole() || disk.new || case.id().size <= disk.approve_above {
        return None;
    }
    Some(case.refuse(
        RefusalKind::NotAClone,
        format!(
            "{} is larger than `approveAbove` ({}) and was not read completely: {}",
            case.device.node(),
            size::words(disk.approve_above),
            proof.words()
        ),
        "set `new: true` if the platform guarantees that the volume is new, or `proof: full` to read the whole disk".to_owned(),
        Vec::new(),
    ))
}

fn was_made(entry: &Entry) -> bool {
    entry.progress > Progress::Intended
}

/// Refusal: the journal records a filesystem on this disk, but the disk holds an image clone.
fn replaced(case: &Case<'_>, entry: &Entry) -> Refusal {
    case.refuse(
        RefusalKind::NotAClone,
        format!(
                        "{} holds an untouched clone of the OS image, but the journal records that the agent made {} with UUID {} on it: \
                         the volume was replaced, and its data may be lost",
            case.device.node(),
            entry.filesystem,
            entry.uuid
        ),
        format!(
                        "restore the volume. If it was replaced on purpose, remove the clone manually (`wipefs --all` on each partition \
                         and on {}), run the plan again, and approve the rest",
            case.device.node()
        ),
        vec![("journalUuid", entry.uuid.clone())],
    )
}

fn refused(case: &Case<'_>, deviations: &[Deviation]) -> Refusal {
    let node = case.device.node();
    let sentences: Vec<String> = deviations.iter().map(Deviation::sentence).collect();
    let mut named = sentences
        .iter()
        .take(MAX_NAMED_DEVIATIONS)
        .cloned()
        .collect::<Vec<_>>()
        .join("; ");
    if sentences.len() > MAX_NAMED_DEVIATIONS {
        let more = sentences.len() - MAX_NAMED_DEVIATIONS;
        named = format!("{named}; and {more} more");
    }
    let facts = sentences
        .into_iter()
        .map(|sentence| ("deviation", sentence))
        .collect();
    case.refuse(
        RefusalKind::NotAClone,
        format!("{node} is not proven to be an untouched clone of the OS image: {named}"),
        format!(
                        "compare it with the root disk (`lsblk -o NAME,SIZE,PARTUUID,UUID,FSTYPE`). If you need no data on it, back it up and \
                         remove it manually (`wipefs --all` on each partition and on {node}), run the plan again, and approve the rest"
        ),
        facts,
    )
}
