//! Evaluates the content of a disk: make a filesystem, use the existing one, or refuse.

use super::content_refusals::describe_foreign_content;
pub(super) use super::content_refusals::{former, mixed_content, undetermined, unreadable};
pub(super) use super::verdict::{LUKS, Verdict};
use virtfleet_wire::settings::ProofKind;

use super::{
    super::{
        journal::{Entry, Evidence, Progress},
        mkfs,
        plan::{DiskStep, Refusal, RefusalKind},
        probe::{Blankness, Content, Left, Probe},
        size,
        wanted::Key,
    },
    Run,
    approval::{approvable, approved_or},
    case::Case,
    foreign::foreign,
    placing::History,
};

/// Declared content of the disk itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layer<'a> {
    /// blkid's name for it.
    pub(super) kind: &'a str,
    /// UUID that the agent would assign.
    pub(super) planned: Option<&'a str>,
    /// UUID in the journal for this layer.
    pub(super) journaled: Option<&'a str>,
}

impl<'a> Run<'a> {
    /// Plans a disk whose filesystem is directly on the disk.
    pub(super) fn plain(
        &mut self,
        case: &Case<'a>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<DiskStep>, Refusal> {
        let planned = case.planned_uuid();
        let layer = Layer {
            kind: case.disk.filesystem.word(),
            planned: planned.as_deref(),
            journaled: case.entry.map(|entry| entry.uuid.as_str()),
        };
        match judge(case, layer, notes)? {
            Verdict::Make { evidence, clear } => {
                let uuid = case.uuid_to_make(planned.clone())?;
                case.check_unique_uuid(&uuid)?;
                case.tools(&[mkfs::program(case.disk.filesystem)])?;
                let (_, arguments) = mkfs::arguments(case.disk, &uuid);
                let intent = case.intent(evidence, layer.kind, &uuid, arguments);
                let mut steps: Vec<DiskStep> = super::clone::step(case).into_iter().collect();
                if clear {
                    steps.push(DiskStep::ClearUnfinished(intent.clone()));
                }
                steps.push(DiskStep::Format(intent));
                steps.extend(self.place(case, &uuid, History::Made, notes)?);
                Ok(steps)
            }
            Verdict::Take { uuid, fresh } => {
                case.check_unique_uuid(&uuid)?;
                self.place(case, &uuid, History::of(case, &uuid, fresh), notes)
            }
        }
    }
}

/// Decides according to the probe result.
pub(super) fn judge(case: &Case<'_>, layer: Layer<'_>, notes: &mut Vec<String>) -> Result<Verdict, Refusal> {
    if let Some(verdict) = super::clone::judge(case, notes) {
        return verdict;
    }
    match case.probe() {
        Probe::Unknown(doubt) => Err(unreadable(case, &doubt.reason, doubt.passing)),
        Probe::Blank(blankness) => blank(case, blankness, notes),
        Probe::HasData(content) if !content.also.is_empty() => Err(foreign(case, content, layer.kind, "")),
        Probe::HasData(content) if !content.is_known() => unknown_bytes(case, content),
        Probe::HasData(content) if content.kind == layer.kind => declared(case, content, layer, notes),
        Probe::HasData(content) => Err(foreign(case, content, layer.kind, "")),
    }
}

/// Refusal for a shared disk without known content. The agent never formats it: another VM may be
/// using it.
fn shared(case: &Case<'_>) -> Refusal {
    case.refuse(
        RefusalKind::MaybeShared,
        "it has no known content and is declared as shared: another VM may be about to write to it",
        "make the filesystem manually, in one VM only; or set shared: false if no other VM uses the disk",
        Vec::new(),
    )
}

fn blank(case: &Case<'_>, blankness: &Blankness, notes: &mut Vec<String>) -> Result<Verdict, Refusal> {
    if case.disk.proof == ProofKind::Full && blankness.proof != ProofKind::Full {
        return Err(unreadable(
            case,
            "it was read only in part, but `proof: full` is set",
            true,
        ));
    }
    if let Key::Uuid(uuid) = &case.key {
        let reason = format!("udev reports the UUID {uuid} for it, but the probe finds nothing");
        return Err(unreadable(case, &reason, true));
    }
    if blankness.bytes == 0 {
        return Err(unreadable(case, "no part of it was read", true));
    }
    if case.disk.shared {
        return Err(shared(case));
    }
    let make = Verdict::Make {
        evidence: Evidence::Blank(blankness.clone()),
        clear: false,
    };
    // A new name in the settings does not make an old disk new: check for its former name.
    notes.push(format!("{} is blank, {}", case.device.node(), blankness.words()));
    let Some(entry) = case.entry.or_else(|| former(case)) else {
        return partly_proven(case, blankness).map_or(Ok(make), |refusal| approved_or(case, refusal));
    };
    if case.progress() == Some(Progress::Intended) && entry.others_wrote && !blankness.is_whole() {
        let message = format!(
            "something else wrote to {} while the agent was about to format it; the parts that were read are zero now, but not \
             the whole disk was read",
            case.device.node()
        );
        let facts = vec![
            ("journalUuid", entry.uuid.clone()),
            ("othersWrote", "true".to_owned()),
        ];
        let mut refusal = approvable(case, RefusalKind::Unfinished, message, facts);
        refusal.remedy = format!("set `proof: full` for the disk; or {}", refusal.remedy);
        return approved_or(case, refusal);
    }
    if case.disk.ephemeral || case.progress() == Some(Progress::Intended) {
        return Ok(make);
    }
    let refusal = approvable(
        case,
        RefusalKind::BlankAgain,
        format!(
            "{} is blank, but the agent made {} for the disk {:?} before, on {} ({}): the disk was replaced, or its data is lost",
            case.device.node(),
            entry.filesystem,
            entry.name,
            entry.key,
            progress_words(entry.progress)
        ),
        vec![
            ("journalKey", entry.key.to_string()),
            ("journalUuid", entry.uuid.clone()),
            ("journalBytes", entry.device.size.to_string()),
            ("progress", progress_words(entry.progress).to_owned()),
        ],
    );
    approved_or(case, refusal)
}

/// Refusal of a large disk that was read only in part and is neither `new` nor `ephemeral`.
fn partly_proven(case: &Case<'_>, blankness: &Blankness) -> Option<Refusal> {
    let disk = case.disk;
    let vouched = disk.new || disk.ephemeral;
    if blankness.is_whole() || vouched || case.id().size <= disk.approve_above {
        return None;
    }
    let mut refusal = approvable(
        case,
        RefusalKind::PartlyProven,
        format!(
            "{} is larger than `approveAbove` ({}) and was not read completely: {}",
            case.device.node(),
            size::words(disk.approve_above),
            blankness.words()
        ),
        Vec::new(),
    );
    refusal.remedy.push_str(
        "; or set `new: true` if the platform guarantees that the volume is new, or `proof: full` to read the whole disk",
    );
    Some(refusal)
}

/// Describes the progress in the journal.
fn progress_words(progress: Progress) -> &'static str {
    match progress {
        Progress::Intended => "begun",
        Progress::Encrypted => "encrypted, without a filesystem",
        Progress::Formatted => "formatted and never mounted",
        Progress::Seeding => "files were being copied to it",
        Progress::Seeded => "files were copied to it",
        Progress::Used => "in use",
    }
}

/// Clears the disk and makes the filesystem again. An approval covered the content before the
/// agent's `mkfs`; after clearing, only a blank disk may be formatted.
fn clear(entry: &Entry) -> Verdict {
    let mut evidence = entry.evidence.clone();
    if let Evidence::Approved { digest, .. } = &mut evidence {
        *digest = None;
    }
    Verdict::Make {
        evidence,
        clear: true,
    }
}

fn unknown_bytes(case: &Case<'_>, content: &Content) -> Result<Verdict, Refusal> {
    if case.disk.shared {
        return Err(shared(case));
    }
    let mut facts = vec![("digest", content.digest.clone())];
    facts.extend(content.first_byte.map(|byte| ("firstByte", byte.to_string())));
    let node = case.device.node();
    if let Some(entry) = case.entry.filter(|_| case.progress() == Some(Progress::Intended)) {
        if content.left == Some(Left::Tool) {
            return Ok(clear(entry));
        }
        facts.push(("journalUuid", entry.uuid.clone()));
        let message = format!(
            "making {} on {node} was started and not finished, and {}",
            entry.filesystem,
            describe_foreign_content(content)
        );
        return approved_or(case, approvable(case, RefusalKind::Unfinished, message, facts));
    }
    if let Some(entry) = case.entry {
        facts.push(("journalUuid", entry.uuid.clone()));
        facts.push(("progress", progress_words(entry.progress).to_owned()));
    }
    let at = content
        .first_byte
        .map_or(String::new(), |byte| format!(", the first at byte {byte}"));
    let message = format!("{node} is not blank: it contains data that no tool recognises{at}");
    approved_or(case, approvable(case, RefusalKind::UnknownData, message, facts))
}

/// Plans a disk with the declared kind of content.
fn declared(
    case: &Case<'_>,
    content: &Content,
    layer: Layer<'_>,
    notes: &mut Vec<String>,
) -> Result<Verdict, Refusal> {
    let Some(uuid) = content.uuid.clone().filter(|uuid| !uuid.is_empty()) else {
        return Err(foreign(
            case,
            content,
            layer.kind,
            ", with a UUID, which the agent needs to mount it",
        ));
    };
    let journaled = layer.journaled == Some(uuid.as_str());
    let ours = journaled || layer.planned == Some(uuid.as_str());
    if journaled
        && case
            .entry
            .is_some_and(|entry| entry.progress == Progress::Intended)
    {
        return started_mkfs(case, layer, content, uuid);
    }
    if let Some(bytes) = content.filesystem_bytes.filter(|bytes| *bytes > case.id().size) {
        return Err(case.refuse(
            RefusalKind::NotEligible,
            format!(
                "{} has {} bytes, its filesystem {bytes}: the disk was shrunk",
                case.device.node(),
                case.id().size
            ),
            "restore the size of the volume; until then the agent does not mount it",
            vec![("filesystemBytes", bytes.to_string())],
        ));
    }
    if !ours && case.by_position() {
        return Err(foreign(
            case,
            content,
            layer.kind,
            " with the UUID that the agent gives this disk (it was matched only by size and order, so it may be another disk)",
        ));
    }
    if !ours && let Some(expected) = layer.journaled {
        notes.push(format!(
            "the disk has the UUID {uuid} and was made with {expected}: its data was restored or replaced"
        ));
    }
    if !content.inside.is_empty() {
        notes.push(format!(
            "blkid does not identify {}: the data of a file looks like {}. It is the agent's own {}",
            case.device.node(),
            content.inside.join(" and "),
            content.kind
        ));
    }
    let fresh = journaled
        && case.same
        && case
            .entry
            .is_some_and(|entry| entry.progress < Progress::Used && entry.progress > Progress::Intended);
    Ok(Verdict::Take { uuid, fresh })
}

/// Plans a filesystem with the UUID of a `mkfs` that the journal records as started. The agent
/// clears it only if nothing but this `mkfs` wrote to it. A filesystem that was used since is
/// mounted if it is complete, and refused otherwise.
fn started_mkfs(
    case: &Case<'_>,
    layer: Layer<'_>,
    content: &Content,
    uuid: String,
) -> Result<Verdict, Refusal> {
    let node = case.device.node();
    match (content.complete, &content.left, case.entry) {
        (Some(true), Some(Left::User { .. }), _) => Ok(Verdict::Take { uuid, fresh: false }),
        (Some(true), Some(Left::Foreign { .. }), _) => Err(mixed_content(case, &node, content, uuid)),
        (Some(true), ..) => Ok(Verdict::Take {
            uuid,
            fresh: case.same,
        }),
        (None, ..) => Err(undetermined(case, &node, uuid)),
        (Some(false), ..) if layer.kind == LUKS => Err(key_refusal(case, &uuid)),
        (Some(false), _, Some(_)) if case.disk.shared => Err(shared(case)),
        (Some(false), Some(Left::Tool), Some(entry)) if case.same => Ok(clear(entry)),
        (Some(false), Some(Left::Tool), _) => {
            let refusal = case.refuse(
                RefusalKind::Unfinished,
                format!(
                    "{node} holds an unfinished mkfs of the agent, but the agent started it on another disk"
                ),
                "inspect it; known content cannot be approved, so remove it manually (`wipefs`)",
                vec![("uuid", uuid)],
            );
            Err(refusal.beyond_approval())
        }
        (Some(false), ..) => Err(mixed_content(case, &node, content, uuid)),
    }
}

/// Refusal: the header is the agent's, but the current key does not open it.
fn key_refusal(case: &Case<'_>, uuid: &str) -> Refusal {
    let said = "the agent made the header with a key other than the current one";
    let Some(encryption) = &case.disk.encryption else {
        return undetermined(case, &case.device.node(), uuid.to_owned());
    };
    super::luks::key_refusal(case, encryption, uuid).refusal(said, false)
}
