//! A disk whose filesystem stands in a LUKS2 container.
//!
//! In a new container everything is noise, so there is no proof of blankness inside. What is made in it rests on the journal: on
//! a container that this very journal has as made by us and as never used, by the header's UUID.

use super::{
    super::{
        journal::{Entry, Evidence, Progress},
        keys::{self, Shut},
        mkfs,
        plan::{FormatIntent, Refusal, RefusalKind, Step},
        probe::{Content, Left, Probe},
        seen::Mapping,
        wanted::{Encryption, KeySource},
    },
    Run,
    case::Case,
    content::{LUKS, Layer, Verdict, judge, mixed, unjudged, unreadable},
    foreign::foreign,
    placing::History,
};

/// What is in a container.
enum Inner {
    /// Nothing of anybody's: make the filesystem.
    Make,
    /// A filesystem to mount, and whether it is only just made by us.
    Take(String, bool),
}

impl<'a> Run<'a> {
    pub(super) fn encrypted(
        &mut self,
        case: &Case<'a>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Step>, Refusal> {
        let Some(encryption) = case.disk.encryption.clone() else {
            return Ok(Vec::new());
        };
        if let Some(mapping) = case.mapping() {
            return self.opened(case, mapping, notes);
        }
        let planned = case.planned_luks();
        let journaled = case.entry.and_then(|entry| entry.luks_uuid.as_deref());
        let layer = Layer {
            kind: LUKS,
            planned: planned.as_deref(),
            journaled,
        };
        match judge(case, layer, notes)? {
            Verdict::Make { evidence, clear } => {
                let header = case.uuid_to_make(planned.clone())?;
                case.alone(&header)?;
                self.encrypt(case, &encryption, evidence, clear, &header, notes)
            }
            Verdict::Take { uuid: header, .. } => {
                case.alone(&header)?;
                self.open(case, &encryption, &header, planned.as_deref(), notes)
            }
        }
    }

    /// From blank to in place.
    fn encrypt(
        &mut self,
        case: &Case<'a>,
        encryption: &Encryption,
        evidence: Evidence,
        clear: bool,
        header: &str,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Step>, Refusal> {
        let enroll = (encryption.key == KeySource::Tpm2).then_some("systemd-cryptenroll");
        let tools: Vec<&str> = [Some("cryptsetup"), enroll].into_iter().flatten().collect();
        case.tools(&tools)?;
        key_files(case, encryption, header, true)?;
        let (_, arguments) = mkfs::luks_arguments(header);
        let intent = case.intent(evidence.clone(), "luks2", header, arguments);
        let mut steps: Vec<Step> = super::clone::step(case).into_iter().collect();
        if clear {
            steps.push(Step::ClearUnfinished(intent.clone()));
        }
        steps.push(Step::Encrypt {
            intent,
            encryption: encryption.clone(),
        });
        steps.push(open_step(case, encryption, header));
        steps.extend(self.fill(case, evidence, notes)?);
        Ok(steps)
    }

    /// Opens what is there. What is in it is known by the journal, or by the UUIDs that we give; else it is seen once it is open.
    fn open(
        &mut self,
        case: &Case<'a>,
        encryption: &Encryption,
        header: &str,
        planned: Option<&str>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Step>, Refusal> {
        case.tools(&["cryptsetup"])?;
        key_files(case, encryption, header, false)?;
        let mut steps = vec![open_step(case, encryption, header)];
        let entry = case
            .entry
            .filter(|entry| case.same && entry.luks_uuid.as_deref() == Some(header));
        match entry {
            Some(entry) if entry.progress <= Progress::Encrypted => {
                steps.extend(self.fill(case, entry.evidence.clone(), notes)?);
            }
            Some(entry) => {
                case.alone(&entry.uuid)?;
                let fresh = entry.progress < Progress::Used;
                steps.extend(self.place(case, &entry.uuid, History::of(case, &entry.uuid, fresh), notes)?);
            }
            None => match case.planned_uuid().filter(|_| planned == Some(header)) {
                Some(uuid) => {
                    case.alone(&uuid)?;
                    steps.extend(self.place(case, &uuid, History::Adopted, notes)?);
                }
                None => notes.push("what is in the container is planned for once it is open".to_owned()),
            },
        }
        Ok(steps)
    }

    /// The container is open.
    fn opened(
        &mut self,
        case: &Case<'a>,
        mapping: &Mapping,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Step>, Refusal> {
        let planned = case.planned_luks();
        let journaled = case.entry.and_then(|entry| entry.luks_uuid.clone());
        let header = mapping.luks_uuid.as_str();
        let known = [&planned, &journaled]
            .into_iter()
            .flatten()
            .any(|uuid| uuid == header);
        match case.probe() {
            Probe::HasData(content) if content.kind == LUKS && content.uuid.as_deref() == Some(header) => {
                if !known && case.by_position() {
                    return Err(foreign(
                        case,
                        content,
                        LUKS,
                        " with our UUID: found by size and order alone, it may be another's",
                    ));
                }
            }
            // Busy because it is open; whose it is, the header's UUID says.
            Probe::Unknown(_) if known => {}
            _ => {
                return Err(case.refuse(
                    RefusalKind::InUse,
                    format!(
                        "/dev/mapper/{} is another container than the one on {}",
                        case.mapping_name(),
                        case.device.node()
                    ),
                    format!("close it: `cryptsetup close {}`", case.mapping_name()),
                    vec![("luksUuid", header.to_owned())],
                ));
            }
        }
        case.alone(header)?;
        match inner(case, mapping)? {
            Inner::Make => {
                // `inner` says so only by an entry.
                let Some(entry) = case.entry else {
                    return Ok(Vec::new());
                };
                self.fill(case, entry.evidence.clone(), notes)
            }
            Inner::Take(uuid, fresh) => {
                case.alone(&uuid)?;
                self.place(case, &uuid, History::of(case, &uuid, fresh), notes)
            }
        }
    }

    /// Makes the filesystem in a container of ours that never held one, and puts it in its place.
    fn fill(
        &mut self,
        case: &Case<'a>,
        evidence: Evidence,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Step>, Refusal> {
        let uuid = case.uuid_to_make(case.planned_uuid())?;
        case.alone(&uuid)?;
        case.tools(&[mkfs::program(case.disk.filesystem)])?;
        let (_, arguments) = mkfs::arguments(case.disk, &uuid);
        let intent: FormatIntent = case.intent(evidence, case.disk.filesystem.word(), &uuid, arguments);
        let mut steps = vec![Step::FormatMapped {
            mapping: case.mapping_name(),
            intent,
        }];
        steps.extend(self.place(case, &uuid, History::Made, notes)?);
        Ok(steps)
    }
}

fn open_step(case: &Case<'_>, encryption: &Encryption, header: &str) -> Step {
    Step::Open {
        device: case.id().clone(),
        mapping: case.mapping_name(),
        luks_uuid: header.to_owned(),
        encryption: encryption.clone(),
    }
}

/// Whether the keys can be had: for a new container that of the boot and the recovery key, to open one of them.
fn key_files(case: &Case<'_>, encryption: &Encryption, header: &str, new: bool) -> Result<(), Refusal> {
    let boot = keys::key_word(encryption);
    let recovery = encryption.recovery.as_deref();
    let bad = |key: &str| case.seen.bad_keys.get(key);
    if !new && recovery.is_some_and(|recovery| bad(recovery).is_none()) {
        return Ok(());
    }
    let found = [Some(boot), recovery.filter(|_| new)]
        .into_iter()
        .flatten()
        .find_map(|key| Some((key, bad(key)?)));
    let Some((key, why)) = found else { return Ok(()) };
    let remedy = if new {
        "put the key in its place, readable for root alone".to_owned()
    } else {
        shut(case, encryption, header).remedy()
    };
    Err(case.refuse(
        RefusalKind::NoKey,
        format!(
            "the key {key} cannot be used: {why}; nothing was changed, and a lost key never leads to a format"
        ),
        remedy,
        vec![("key", key.to_owned()), ("reason", why.clone())],
    ))
}

/// The container as the messages about its key have it.
pub(super) fn shut<'a>(case: &'a Case<'_>, encryption: &'a Encryption, luks_uuid: &'a str) -> Shut<'a> {
    Shut {
        name: &case.disk.name,
        device: case.id(),
        luks_uuid,
        encryption,
    }
}

/// The entry of a container of ours in which nothing was ever mounted.
fn unused<'a>(case: &Case<'a>, mapping: &Mapping) -> Option<&'a Entry> {
    case.entry.filter(|entry| {
        case.same
            && entry.progress <= Progress::Encrypted
            && entry.luks_uuid.as_deref() == Some(mapping.luks_uuid.as_str())
    })
}

fn inner(case: &Case<'_>, mapping: &Mapping) -> Result<Inner, Refusal> {
    let unused = unused(case, mapping);
    let content = match &mapping.probe {
        Probe::Unknown(doubt) => return Err(unreadable(case, &doubt.reason, doubt.passing)),
        Probe::Blank(_) => None,
        Probe::HasData(content) if !content.is_known() && content.also.is_empty() => None,
        Probe::HasData(content) => Some(content),
    };
    let Some(content) = content else {
        let by_tool = match &mapping.probe {
            Probe::HasData(content) => content.left == Some(Left::Tool),
            Probe::Blank(_) | Probe::Unknown(_) => true,
        };
        return match unused {
            Some(_) if by_tool => Ok(Inner::Make),
            Some(_) => Err(written(case, &mapping.probe)),
            None => Err(no_filesystem(case)),
        };
    };
    let kind = case.disk.filesystem.word();
    if content.kind != kind || !content.also.is_empty() {
        return Err(foreign(case, content, kind, " in its container"));
    }
    let Some(uuid) = content.uuid.clone().filter(|uuid| !uuid.is_empty()) else {
        return Err(foreign(case, content, kind, " with a UUID in its container"));
    };
    if let Some(entry) = unused {
        return ours_begun(case, entry, content, uuid);
    }
    let journaled = case.entry.filter(|entry| case.same && entry.uuid == uuid);
    let fresh = journaled.is_some_and(|entry| entry.progress < Progress::Used);
    Ok(Inner::Take(uuid, fresh))
}

/// A filesystem in a container of ours whose `mkfs` was not seen to end.
fn ours_begun(case: &Case<'_>, entry: &Entry, content: &Content, uuid: String) -> Result<Inner, Refusal> {
    if entry.uuid != uuid {
        return Err(foreign(
            case,
            content,
            case.disk.filesystem.word(),
            " with our UUID in its container",
        ));
    }
    let place = format!("the container on {}", case.device.node());
    match (content.complete, &content.left) {
        (Some(true), Some(Left::User { .. })) => Ok(Inner::Take(uuid, false)),
        (Some(true), Some(Left::Tool) | None) => Ok(Inner::Take(uuid, true)),
        (Some(false), Some(Left::Tool)) => Ok(Inner::Make),
        (None, _) => Err(unjudged(case, &place, uuid)),
        (Some(_), _) => Err(mixed(case, &place, content, uuid)),
    }
}

/// A new container into which something was written that is not our unfinished filesystem.
fn written(case: &Case<'_>, probe: &Probe) -> Refusal {
    let mapping = format!("/dev/mapper/{}", case.mapping_name());
    let at = match probe {
        Probe::HasData(Content {
            left: Some(Left::Foreign { at }),
            ..
        }) => format!(", the first at byte {at}"),
        _ => String::new(),
    };
    let refusal = case.refuse(
        RefusalKind::UnknownData,
        format!(
            "the container on {} was made and never held a filesystem, and there are bytes in it that no tool of \
             ours wrote{at}",
            case.device.node()
        ),
        format!("look at {mapping} and copy what is needed; then write zeros over it (`blkdiscard -z {mapping}`)"),
        vec![("mapping", case.mapping_name())],
    );
    refusal.beyond_approval()
}

/// Not approvable: bytes in a container that was used are somebody's, however they look.
fn no_filesystem(case: &Case<'_>) -> Refusal {
    let refusal = case.refuse(
        RefusalKind::UnknownData,
        format!(
            "the container on {} holds no filesystem that is known, and is not known as new",
            case.device.node()
        ),
        "look at what is in it (`blkid /dev/mapper/…`); a filesystem in it is made by hand",
        vec![("mapping", case.mapping_name())],
    );
    refusal.beyond_approval()
}
