//! A disk whose filesystem is in a LUKS2 container.
//!
//! A new container contains random data, so its content cannot be proven blank. The agent formats
//! it only if the journal records a container with the same header UUID that the agent made and
//! that was never used.

pub(super) use super::luks_key::key_refusal;
use super::{
    super::{
        journal::{Entry, Evidence, Progress},
        keys::{self},
        mkfs,
        plan::{DiskStep, FormatIntent, Refusal, RefusalKind},
        probe::{Content, Left, Probe},
        seen::Mapping,
        wanted::{Encryption, KeySource},
    },
    Run,
    case::Case,
    content::{LUKS, Layer, Verdict, judge, mixed_content, undetermined, unreadable},
    foreign::foreign,
    placing::History,
};

/// Content of a container.
enum Inner {
    /// No data: make the filesystem.
    Make,
    /// UUID of a filesystem to mount, and whether the agent has just made it.
    Take(String, bool),
}

impl<'a> Run<'a> {
    pub(super) fn encrypted(
        &mut self,
        case: &Case<'a>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<DiskStep>, Refusal> {
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
                case.check_unique_uuid(&header)?;
                self.encrypt(case, &encryption, evidence, clear, &header, notes)
            }
            Verdict::Take { uuid: header, .. } => {
                case.check_unique_uuid(&header)?;
                self.open(case, &encryption, &header, planned.as_deref(), notes)
            }
        }
    }

    /// Plans a blank disk: container, filesystem, mount.
    fn encrypt(
        &mut self,
        case: &Case<'a>,
        encryption: &Encryption,
        evidence: Evidence,
        clear: bool,
        header: &str,
        notes: &mut Vec<String>,
    ) -> Result<Vec<DiskStep>, Refusal> {
        let enroll = (encryption.key == KeySource::Tpm2).then_some("systemd-cryptenroll");
        let tools: Vec<&str> = [Some("cryptsetup"), enroll].into_iter().flatten().collect();
        case.tools(&tools)?;
        key_files(case, encryption, header, true)?;
        let (_, arguments) = mkfs::luks_arguments(header);
        let intent = case.intent(evidence.clone(), "luks2", header, arguments);
        let mut steps: Vec<DiskStep> = super::clone::step(case).into_iter().collect();
        if clear {
            steps.push(DiskStep::ClearUnfinished(intent.clone()));
        }
        steps.push(DiskStep::Encrypt {
            intent,
            encryption: encryption.clone(),
        });
        steps.push(open_step(case, encryption, header));
        steps.extend(self.fill(case, evidence, notes)?);
        Ok(steps)
    }

    /// Plans a closed container. The journal or the planned UUIDs tell its content; otherwise the
    /// next run plans it when the container is open.
    fn open(
        &mut self,
        case: &Case<'a>,
        encryption: &Encryption,
        header: &str,
        planned: Option<&str>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<DiskStep>, Refusal> {
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
                case.check_unique_uuid(&entry.uuid)?;
                let fresh = entry.progress < Progress::Used;
                steps.extend(self.place(case, &entry.uuid, History::of(case, &entry.uuid, fresh), notes)?);
            }
            None => match case.planned_uuid().filter(|_| planned == Some(header)) {
                Some(uuid) => {
                    case.check_unique_uuid(&uuid)?;
                    steps.extend(self.place(case, &uuid, History::Adopted, notes)?);
                }
                None => notes
                    .push("the content of the container is planned when the container is open".to_owned()),
            },
        }
        Ok(steps)
    }

    /// Plans an open container.
    fn opened(
        &mut self,
        case: &Case<'a>,
        mapping: &Mapping,
        notes: &mut Vec<String>,
    ) -> Result<Vec<DiskStep>, Refusal> {
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
                        " with the UUID that the agent gives this disk (it was matched only by size and order, so it may be another disk)",
                    ));
                }
            }
            // Busy because it is open; the header's UUID identifies it.
            Probe::Unknown(_) if known => {}
            _ => {
                return Err(case.refuse(
                    RefusalKind::InUse,
                    format!(
                        "/dev/mapper/{} is not the container on {}",
                        case.mapping_name(),
                        case.device.node()
                    ),
                    format!("close it: `cryptsetup close {}`", case.mapping_name()),
                    vec![("luksUuid", header.to_owned())],
                ));
            }
        }
        case.check_unique_uuid(header)?;
        match inner(case, mapping)? {
            Inner::Make => {
                // `inner` returns `Make` only if there is an entry.
                let Some(entry) = case.entry else {
                    return Ok(Vec::new());
                };
                self.fill(case, entry.evidence.clone(), notes)
            }
            Inner::Take(uuid, fresh) => {
                case.check_unique_uuid(&uuid)?;
                self.place(case, &uuid, History::of(case, &uuid, fresh), notes)
            }
        }
    }

    /// Makes and mounts the filesystem in a container of the agent that never had one.
    fn fill(
        &mut self,
        case: &Case<'a>,
        evidence: Evidence,
        notes: &mut Vec<String>,
    ) -> Result<Vec<DiskStep>, Refusal> {
        let uuid = case.uuid_to_make(case.planned_uuid())?;
        case.check_unique_uuid(&uuid)?;
        case.tools(&[mkfs::program(case.disk.filesystem)])?;
        let (_, arguments) = mkfs::arguments(case.disk, &uuid);
        let intent: FormatIntent = case.intent(evidence, case.disk.filesystem.word(), &uuid, arguments);
        let mut steps = vec![DiskStep::FormatMapped {
            mapping: case.mapping_name(),
            intent,
        }];
        steps.extend(self.place(case, &uuid, History::Made, notes)?);
        Ok(steps)
    }
}

fn open_step(case: &Case<'_>, encryption: &Encryption, header: &str) -> DiskStep {
    DiskStep::Open {
        device: case.id().clone(),
        mapping: case.mapping_name(),
        luks_uuid: header.to_owned(),
        encryption: encryption.clone(),
    }
}

/// Checks that the keys are readable: the boot key, and for a new container the recovery key, too.
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
        "create the key file, readable only by root".to_owned()
    } else {
        key_refusal(case, encryption, header).remedy()
    };
    Err(case.refuse(
        RefusalKind::NoKey,
        format!(
            "cannot use the key {key}: {why}; nothing was changed, and the agent never formats a disk because its key is lost"
        ),
        remedy,
        vec![("key", key.to_owned()), ("reason", why.clone())],
    ))
}

/// Journal entry of a container that the agent made and in which nothing was ever mounted.
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
        return Err(foreign(case, content, kind, ""));
    }
    let Some(uuid) = content.uuid.clone().filter(|uuid| !uuid.is_empty()) else {
        return Err(foreign(case, content, kind, " with a UUID"));
    };
    if let Some(entry) = unused {
        return unfinished_filesystem(case, entry, content, uuid);
    }
    let journaled = case.entry.filter(|entry| case.same && entry.uuid == uuid);
    let fresh = journaled.is_some_and(|entry| entry.progress < Progress::Used);
    Ok(Inner::Take(uuid, fresh))
}

/// Evaluates a filesystem in a container of the agent whose `mkfs` is not recorded as finished.
fn unfinished_filesystem(
    case: &Case<'_>,
    entry: &Entry,
    content: &Content,
    uuid: String,
) -> Result<Inner, Refusal> {
    if entry.uuid != uuid {
        return Err(foreign(
            case,
            content,
            case.disk.filesystem.word(),
            " with the UUID that the agent gives this disk",
        ));
    }
    let place = format!("the container on {}", case.device.node());
    match (content.complete, &content.left) {
        (Some(true), Some(Left::User { .. })) => Ok(Inner::Take(uuid, false)),
        (Some(true), Some(Left::Tool) | None) => Ok(Inner::Take(uuid, true)),
        (Some(false), Some(Left::Tool)) => Ok(Inner::Make),
        (None, _) => Err(undetermined(case, &place, uuid)),
        (Some(_), _) => Err(mixed_content(case, &place, content, uuid)),
    }
}

/// Refusal of a new container with data that is not from an unfinished `mkfs` of the agent.
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
                        "the agent made the container on {} and no filesystem in it, but it contains data that no tool of the agent \
                         wrote{at}",
            case.device.node()
        ),
        format!("inspect {mapping} and copy the data that you need; then write zeros over it (`blkdiscard -z {mapping}`)"),
        vec![("mapping", case.mapping_name())],
    );
    refusal.beyond_approval()
}

/// Refusal of a used container without a known filesystem. It cannot be approved: any bytes in it
/// may be data.
fn no_filesystem(case: &Case<'_>) -> Refusal {
    let refusal = case.refuse(
        RefusalKind::UnknownData,
        format!(
            "the container on {} holds no known filesystem, and the journal does not record it as new",
            case.device.node()
        ),
        "inspect its content (`blkid /dev/mapper/…`); make a filesystem in it manually",
        vec![("mapping", case.mapping_name())],
    );
    refusal.beyond_approval()
}
