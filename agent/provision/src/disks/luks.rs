//! Steps `encrypt`, `open`, `format-mapped` and `grow-mapping`. A key that is missing or does not
//! fit causes an error, never a format.

use std::path::{Path, PathBuf};

use virtfleet_agent_core::disks::{
    Content, DeviceId, DiskStep, FormatIntent, Probe,
    journal::{Entry, Progress},
    keys::{self, PCRS, Shut},
    uuids,
    wanted::{Encryption, KeySource},
};
use virtfleet_agent_host::disks::tools::{enroll, luks};

use super::{
    format,
    places::table_changed,
    probes::made_with,
    session::Session,
    step_result::{Effect, StepError},
    unlock::{Unlocked, Way, unlock},
};

/// The path of the key that a header is made with, see [`made_with`].
fn key_file(session: &Session<'_>, encryption: &Encryption) -> Result<PathBuf, StepError> {
    made_with(encryption)
        .map(|path| session.provisioner.roots.root(path))
        .ok_or_else(|| StepError::new("there is no recovery key; name one in encryption.luks2.recoveryKey"))
}

pub(super) fn encrypt(
    session: &mut Session<'_>,
    intent: &FormatIntent,
    encryption: &Encryption,
) -> Result<Effect, StepError> {
    let step = DiskStep::Encrypt {
        intent: intent.clone(),
        encryption: encryption.clone(),
    };
    let provisioner = session.provisioner;
    let intent = &format::since_cleared(session, intent)?;
    session.store()?;
    let key = key_file(session, encryption)?;
    let (filesystem, uuid) = inner(session, &intent.name)?;
    let disk = provisioner.disks().claim(intent)?;
    session.at(&intent.name, "claimed");
    session.keep_for_undo(intent);
    let before = session.entry(&intent.name).cloned();
    session.write(session.intended(intent, &uuid, Some(intent.uuid.clone()), &filesystem))?;
    session.at(&intent.name, "intended");
    session.use_approval(intent)?;
    session.audit(
        "about-to",
        step.word(),
        intent,
        format::before(session, intent).as_ref(),
        None,
    )?;
    session.at(&intent.name, "audited");
    let node = provisioner.roots.root(format!("/dev/{}", intent.device.name));
    if let Err(error) = provisioner.disks().encrypt(disk, intent, &key) {
        return Err(format::failed(session, step.word(), intent, before, error));
    }
    session.at(&intent.name, "encrypted");
    if let Err(error) = second_key(session, encryption, &key, &node) {
        session.audit("failed", step.word(), intent, None, Some(&error))?;
        return Err(error);
    }
    session.at(&intent.name, "enrolled");
    session.audit("done", step.word(), intent, None, None)?;
    session.progress(&intent.name, Progress::Encrypted)?;
    let content = Content {
        kind: "crypto_LUKS".to_owned(),
        uuid: Some(intent.uuid.clone()),
        ..Content::default()
    };
    session.made.push((intent.name.clone(), Probe::HasData(content)));
    Ok(Effect::Changed)
}

/// Enrols the second key of a header, unless it is enrolled.
fn second_key(
    session: &Session<'_>,
    encryption: &Encryption,
    key: &Path,
    node: &Path,
) -> Result<(), StepError> {
    let commands = session.provisioner.commands;
    match (&encryption.key, &encryption.recovery) {
        (KeySource::Tpm2, _) if luks::token_fits(commands, node)? => {}
        (KeySource::Tpm2, _) => drop(enroll::tpm2(commands, key, PCRS, node)?),
        (KeySource::File(_), Some(recovery)) => {
            let recovery = session.provisioner.roots.root(recovery);
            if !luks::fits(commands, &recovery, node)? {
                luks::add_key(commands, key, &recovery, node)?;
            }
        }
        (KeySource::File(_), None) => {}
    }
    Ok(())
}

/// Completes an [`encrypt`] that was interrupted after the header was written, with the key that
/// the header was made with.
fn finish(
    session: &mut Session<'_>,
    name: &str,
    device: &DeviceId,
    luks_uuid: &str,
    node: &Path,
) -> Result<(), StepError> {
    let begun = session.entry(name).is_some_and(|entry| {
        entry.progress == Progress::Intended && entry.luks_uuid.as_deref() == Some(luks_uuid)
    });
    if !begun {
        return Ok(());
    }
    let wanted = session.observed.wanted.iter().find(|wanted| wanted.name == name);
    let encryption = wanted
        .and_then(|wanted| wanted.encryption.clone())
        .ok_or_else(|| StepError::new("it is not declared as encrypted any more"))?;
    let key = key_file(session, &encryption)?;
    if !luks::fits(session.provisioner.commands, &key, node)? {
        let refusal = Shut {
            name,
            device,
            luks_uuid,
            encryption: &encryption,
        }
        .refusal(
            "the agent began this header with another key than the one that is there now",
            false,
        );
        let message = refusal.message.clone();
        session.shut.insert(name.to_owned(), refusal);
        return Err(StepError::new(message));
    }
    second_key(session, &encryption, &key, node)?;
    session.at(name, "enrolled");
    session.progress(name, Progress::Encrypted)
}

/// The kind and UUID of the filesystem in the container.
fn inner(session: &Session<'_>, name: &str) -> Result<(String, String), StepError> {
    let wanted = session
        .observed
        .wanted
        .iter()
        .find(|wanted| wanted.name == name)
        .ok_or_else(|| StepError::new("it is not declared any more"))?;
    let uuid = uuids::filesystem(session.provisioner.vm_uuid, name)
        .ok_or_else(|| StepError::new("the VM has no UUID of its own (virtfleet-agent doctor)"))?;
    Ok((wanted.filesystem.word().to_owned(), uuid))
}

pub(super) fn open(
    session: &mut Session<'_>,
    name: &str,
    device: &DeviceId,
    mapping: &str,
    luks_uuid: &str,
    encryption: &Encryption,
) -> Result<Effect, StepError> {
    let provisioner = session.provisioner;
    session.same(device)?;
    let node = provisioner.roots.root(format!("/dev/{}", device.name));
    let found = luks::uuid(provisioner.commands, &node)?;
    if !found
        .as_ref()
        .is_some_and(|found| found.eq_ignore_ascii_case(luks_uuid))
    {
        let found = found.unwrap_or_else(|| "none".to_owned());
        return Err(StepError::new(format!(
            "its header has the UUID {found} and not {luks_uuid}"
        )));
    }
    finish(session, name, device, luks_uuid, &node)?;
    let shut = Shut {
        name,
        device,
        luks_uuid,
        encryption,
    };
    match unlock(
        provisioner,
        &session.observed.seen,
        encryption,
        &mut |way| match way {
            Way::File(path) => luks::open(provisioner.commands, path, &node, mapping),
            Way::Token => luks::open_by_token(provisioner.commands, &node, mapping),
        },
    )? {
        Unlocked::ByKey => {}
        Unlocked::ByRecovery => {
            tracing::warn!(
                disk = name,
                "opened with the recovery key: its own key does not open it"
            );
            session.recovered.insert(name.to_owned());
        }
        Unlocked::No { said, recovery } => {
            let refusal = shut.refusal(&said, recovery);
            let message = refusal.message.clone();
            session.shut.insert(name.to_owned(), refusal);
            return Err(StepError::new(message));
        }
    }
    Ok(Effect::Changed)
}

/// Formats a new mapping. Relies on the journal (exactly `Encrypted`) and on the header, because
/// all content of a new mapping is random.
pub(super) fn format(
    session: &mut Session<'_>,
    mapping: &str,
    intent: &FormatIntent,
) -> Result<Effect, StepError> {
    let step = DiskStep::FormatMapped {
        mapping: mapping.to_owned(),
        intent: intent.clone(),
    };
    let provisioner = session.provisioner;
    if let Some(header) = session
        .entry(&intent.name)
        .and_then(|entry| entry.luks_uuid.clone())
    {
        session.same(&intent.device)?;
        let node = provisioner.roots.root(format!("/dev/{}", intent.device.name));
        finish(session, &intent.name, &intent.device, &header, &node)?;
    }
    let entry = session.entry(&intent.name).cloned();
    let Some((entry, luks_uuid)) = entry
        .filter(|entry| entry.progress == Progress::Encrypted)
        .and_then(|entry| entry.luks_uuid.clone().map(|uuid| (entry, uuid)))
    else {
        return Err(StepError::new(
            "the journal does not have its container as made and empty",
        ));
    };
    if !entry.uuid.eq_ignore_ascii_case(&intent.uuid) {
        return Err(StepError::new("the journal has another UUID for its filesystem"));
    }
    let container = provisioner
        .disks()
        .claim_container(mapping, &luks_uuid, intent, &entry)?;
    session.at(&intent.name, "claimed");
    // If this run is interrupted, its arguments identify what it leaves in the mapping.
    session.write(Entry {
        arguments: intent.arguments.clone(),
        ..entry
    })?;
    session.audit("about-to", step.word(), intent, None, None)?;
    session.at(&intent.name, "audited");
    if let Err(error) = provisioner.disks().format_container(container, intent) {
        let error = StepError::from(error);
        session.audit("failed", step.word(), intent, None, Some(&error))?;
        return Err(error);
    }
    session.at(&intent.name, "formatted");
    session.audit("done", step.word(), intent, None, None)?;
    session.progress(&intent.name, Progress::Formatted)?;
    Ok(Effect::Changed)
}

pub(super) fn grow(
    session: &mut Session<'_>,
    mapping: &str,
    encryption: &Encryption,
) -> Result<Effect, StepError> {
    let commands = session.provisioner.commands;
    let below = session
        .observed
        .plan
        .disks
        .iter()
        .find(|plan| keys::mapping(&plan.name) == mapping);
    if let Some(id) = below
        .and_then(|plan| plan.device.as_ref())
        .filter(|id| id.partition.is_some())
    {
        session.same(id)?;
        let now = session.provisioner.disks().current(id)?;
        if let Some(fault) = now.and_then(|device| device.fault) {
            return Err(table_changed(mapping, id, &fault));
        }
    }
    let key = key_file(session, encryption)?;
    let resized = match &encryption.key {
        // The recovery key need not be on the guest.
        KeySource::Tpm2 => {
            luks::resize_by_token(commands, mapping).or_else(|_| luks::resize(commands, &key, mapping))
        }
        // A container that was opened with the recovery key is grown with it, too.
        KeySource::File(_) => luks::resize(commands, &key, mapping).or_else(|error| {
            let recovery = encryption.recovery.as_ref();
            let recovery = recovery.map(|path| session.provisioner.roots.root(path));
            recovery.map_or(Err(error), |recovery| luks::resize(commands, &recovery, mapping))
        }),
    };
    resized?;
    Ok(Effect::Changed)
}
