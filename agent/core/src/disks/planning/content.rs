//! What is on the disk itself, and what follows from it: make something, take what is there, or refuse.

use virtfleet_wire::settings::ProofKind;

use super::{
    super::{
        journal::{Entry, Evidence, Progress},
        mkfs,
        plan::{Refusal, RefusalKind, Step},
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

/// What to do with a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Make it.
    Make {
        /// Why that is right.
        evidence: Evidence,
        /// Whether our own unfinished work is on it, and is cleared first.
        clear: bool,
    },
    /// Use what is there.
    Take {
        /// Its UUID.
        uuid: String,
        /// Whether it is only just made by us: nobody has written to it.
        fresh: bool,
    },
}

/// A container, as blkid names it.
pub(super) const LUKS: &str = "crypto_LUKS";

/// What is to be on the disk itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layer<'a> {
    /// As blkid names it.
    pub(super) kind: &'a str,
    /// The UUID that we would give.
    pub(super) planned: Option<&'a str>,
    /// The UUID that the journal has for this layer.
    pub(super) journaled: Option<&'a str>,
}

impl<'a> Run<'a> {
    /// A disk whose filesystem stands on the disk itself.
    pub(super) fn plain(&mut self, case: &Case<'a>, notes: &mut Vec<String>) -> Result<Vec<Step>, Refusal> {
        let planned = case.planned_uuid();
        let layer = Layer {
            kind: case.disk.filesystem.word(),
            planned: planned.as_deref(),
            journaled: case.entry.map(|entry| entry.uuid.as_str()),
        };
        match judge(case, layer, notes)? {
            Verdict::Make { evidence, clear } => {
                let uuid = case.uuid_to_make(planned.clone())?;
                case.alone(&uuid)?;
                case.tools(&[mkfs::program(case.disk.filesystem)])?;
                let (_, arguments) = mkfs::arguments(case.disk, &uuid);
                let intent = case.intent(evidence, layer.kind, &uuid, arguments);
                let mut steps: Vec<Step> = super::clone::step(case).into_iter().collect();
                if clear {
                    steps.push(Step::ClearUnfinished(intent.clone()));
                }
                steps.push(Step::Format(intent));
                steps.extend(self.place(case, &uuid, History::Made, notes)?);
                Ok(steps)
            }
            Verdict::Take { uuid, fresh } => {
                case.alone(&uuid)?;
                self.place(case, &uuid, History::of(case, &uuid, fresh), notes)
            }
        }
    }
}

/// Decides by what the probe found.
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

pub(super) fn unreadable(case: &Case<'_>, reason: &str, passing: bool) -> Refusal {
    let remedy = if passing {
        "it is looked at again at the next pass: `systemctl start virtfleet-reconcile.service`"
    } else {
        "look at the kernel's messages (`dmesg`) and at the volume; nothing is done while it cannot be read"
    };
    let message = format!(
        "what is on {} could not be found out: {reason}",
        case.device.node()
    );
    case.refuse(
        RefusalKind::Unreadable,
        message,
        remedy,
        vec![("reason", reason.to_owned())],
    )
}

/// Never: it may be in use elsewhere at this moment.
fn shared(case: &Case<'_>) -> Refusal {
    case.refuse(
        RefusalKind::MaybeShared,
        "nothing is known on it, and it is declared as shared: another VM may be about to write to it",
        "make the filesystem on it by hand, in one VM alone; or set shared: false when no other VM has it",
        Vec::new(),
    )
}

fn blank(case: &Case<'_>, blankness: &Blankness, notes: &mut Vec<String>) -> Result<Verdict, Refusal> {
    if case.disk.proof == ProofKind::Full && blankness.proof != ProofKind::Full {
        return Err(unreadable(
            case,
            "it was read in part, and `proof: full` is asked for",
            true,
        ));
    }
    if let Key::Uuid(uuid) = &case.key {
        let reason = format!("udev has the UUID {uuid} on it, and nothing is found there now");
        return Err(unreadable(case, &reason, true));
    }
    if blankness.bytes == 0 {
        return Err(unreadable(case, "nothing of it was read", true));
    }
    if case.disk.shared {
        return Err(shared(case));
    }
    let make = Verdict::Make {
        evidence: Evidence::Blank(blankness.clone()),
        clear: false,
    };
    // A name that is new in the settings makes no new disk.
    notes.push(format!("{} is blank, {}", case.device.node(), blankness.words()));
    let Some(entry) = case.entry.or_else(|| former(case)) else {
        return partly_proven(case, blankness).map_or(Ok(make), |refusal| approved_or(case, refusal));
    };
    if case.progress() == Some(Progress::Intended) && entry.others_wrote && !blankness.is_whole() {
        let message = format!(
            "something else wrote to {} while it was about to be formatted; what was read of it is zero now, and not all of \
             it was read",
            case.device.node()
        );
        let facts = vec![
            ("journalUuid", entry.uuid.clone()),
            ("othersWrote", "true".to_owned()),
        ];
        let mut refusal = approvable(case, RefusalKind::Unfinished, message, facts);
        refusal.remedy = format!("set `proof: full` for it; or {}", refusal.remedy);
        return approved_or(case, refusal);
    }
    if case.disk.ephemeral || case.progress() == Some(Progress::Intended) {
        return Ok(make);
    }
    let refusal = approvable(
        case,
        RefusalKind::BlankAgain,
        format!(
            "{} is blank, and {} was made for the disk {:?} before, on {} ({}): it was replaced, or its data is lost",
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

/// The refusal of a large disk that was not read whole and is declared neither as `new` nor as `ephemeral`.
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
            "{} is larger than `approveAbove` ({}) and was not read whole: {}",
            case.device.node(),
            size::words(disk.approve_above),
            blankness.words()
        ),
        Vec::new(),
    );
    refusal.remedy.push_str(
        "; or set `new: true` when the platform says that the volume is new, or `proof: full` to read all of it",
    );
    Some(refusal)
}

/// The entry of a disk that had another name, when it was this one and was made.
pub(super) fn former<'a>(case: &Case<'a>) -> Option<&'a Entry> {
    let mut entries = case.journal.entries.iter();
    entries.find(|entry| entry.key == case.key && entry.progress > Progress::Intended)
}

/// What the journal's words mean to a person.
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

/// To be cleared and made again. What a person has judged was on the disk before our `mkfs`: what follows the clearing must find blankness, and never
/// that.
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
            "making {} on {node} was begun and not ended, and {}",
            entry.filesystem,
            foreign_words(content)
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
    let message = format!("{node} is not blank: it holds bytes that no tool knows{at}");
    approved_or(case, approvable(case, RefusalKind::UnknownData, message, facts))
}

/// What is not from our tool, in words.
fn foreign_words(content: &Content) -> String {
    match &content.left {
        Some(Left::Foreign { at }) => {
            format!("the byte at {at} is not what that tool writes there: something else wrote to the disk")
        }
        Some(Left::User { trace }) => format!("it was used since: {trace}"),
        Some(Left::Tool) | None => {
            "it could not be proven that all that is there is from that tool".to_owned()
        }
    }
}

/// There is what was asked for.
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
            ", with a UUID, by which it is mounted",
        ));
    };
    let journaled = layer.journaled == Some(uuid.as_str());
    let ours = journaled || layer.planned == Some(uuid.as_str());
    if journaled
        && case
            .entry
            .is_some_and(|entry| entry.progress == Progress::Intended)
    {
        return begun(case, layer, content, uuid);
    }
    if let Some(bytes) = content.filesystem_bytes.filter(|bytes| *bytes > case.id().size) {
        return Err(case.refuse(
            RefusalKind::NotEligible,
            format!(
                "{} has {} bytes and its filesystem {bytes}: the disk was shrunk",
                case.device.node(),
                case.id().size
            ),
            "give the volume its size back; nothing is mounted before",
            vec![("filesystemBytes", bytes.to_string())],
        ));
    }
    if !ours && case.by_position() {
        return Err(foreign(
            case,
            content,
            layer.kind,
            " with our UUID: found by size and order alone, it may be another's",
        ));
    }
    if !ours && let Some(expected) = layer.journaled {
        notes.push(format!(
            "the disk has the UUID {uuid} and was made with {expected}: its data was restored or replaced"
        ));
    }
    let fresh = journaled
        && case.same
        && case
            .entry
            .is_some_and(|entry| entry.progress < Progress::Used && entry.progress > Progress::Intended);
    Ok(Verdict::Take { uuid, fresh })
}

/// It has the UUID of a `mkfs` that the journal knows as begun. Only what that tool alone wrote is
/// cleared; what was used since is mounted when it is complete, and refused otherwise.
fn begun(case: &Case<'_>, layer: Layer<'_>, content: &Content, uuid: String) -> Result<Verdict, Refusal> {
    let node = case.device.node();
    match (content.complete, &content.left, case.entry) {
        (Some(true), Some(Left::User { .. }), _) => Ok(Verdict::Take { uuid, fresh: false }),
        (Some(true), Some(Left::Foreign { .. }), _) => Err(mixed(case, &node, content, uuid)),
        (Some(true), ..) => Ok(Verdict::Take {
            uuid,
            fresh: case.same,
        }),
        (None, ..) => Err(unjudged(case, &node, uuid)),
        (Some(false), ..) if layer.kind == LUKS => Err(shut(case, &uuid)),
        (Some(false), _, Some(_)) if case.disk.shared => Err(shared(case)),
        (Some(false), Some(Left::Tool), Some(entry)) if case.same => Ok(clear(entry)),
        (Some(false), Some(Left::Tool), _) => {
            let refusal = case.refuse(
                RefusalKind::Unfinished,
                format!("{node} holds what a mkfs of ours has begun and not ended, and it is not the disk on which that was"),
                "look at it; what is on it is known, so it is removed by hand (`wipefs`), not by approval",
                vec![("uuid", uuid)],
            );
            Err(refusal.beyond_approval())
        }
        (Some(false), ..) => Err(mixed(case, &node, content, uuid)),
    }
}

/// There is a filesystem with our UUID, and beside it something that our tool did not write.
pub(super) fn mixed(case: &Case<'_>, place: &str, content: &Content, uuid: String) -> Refusal {
    let mut facts = vec![("uuid", uuid)];
    match &content.left {
        Some(Left::Foreign { at }) => facts.push(("foreignByte", at.to_string())),
        Some(Left::User { trace }) => facts.push(("used", trace.clone())),
        Some(Left::Tool) | None => {}
    }
    let refusal = case.refuse(
        RefusalKind::Unfinished,
        format!(
            "{place} holds a filesystem whose making was begun and not recorded as ended, and {}",
            foreign_words(content)
        ),
        "copy what is needed from it; then remove the filesystem by hand (`wipefs --all`, and zeros over what is \
         left), which no approval does",
        facts,
    );
    refusal.beyond_approval()
}

/// Nobody says whether it is whole, or it was mounted by somebody since. Nothing is cleared by that.
pub(super) fn unjudged(case: &Case<'_>, place: &str, uuid: String) -> Refusal {
    let refusal = case.refuse(
        RefusalKind::Unfinished,
        format!(
            "{place} holds what a mkfs of ours has begun, and whether that is whole could not be judged: its checker did not say, or somebody has \
             mounted it since"
        ),
        "look at it with its checker (`e2fsck -n`, `xfs_repair -n`, `btrfs check`); what is on it is known, so it is removed by hand (`wipefs`), \
         not by approval",
        vec![("uuid", uuid)],
    );
    refusal.beyond_approval()
}

/// Our own header, and the key that it was made with is not the one that is there now.
fn shut(case: &Case<'_>, uuid: &str) -> Refusal {
    let said = "the header was begun by us, with a key that is not the one in its place now";
    let Some(encryption) = &case.disk.encryption else {
        return unjudged(case, &case.device.node(), uuid.to_owned());
    };
    super::luks::shut(case, encryption, uuid).refusal(said, false)
}
