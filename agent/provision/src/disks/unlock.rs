//! Finds the declared key that opens a container, and the error if none does.

use std::path::Path;

use virtfleet_agent_core::disks::{
    DiskStep, Seen,
    keys::Shut,
    wanted::{Encryption, KeySource},
};
use virtfleet_agent_host::{
    CommandError,
    disks::tools::luks::{self, Opened},
};

use super::{observed::Observed, provisioner::DiskProvisioner, step_result::StepError};

/// A key that may open a container.
#[derive(Debug)]
pub(super) enum Way<'a> {
    File(&'a Path),
    Token,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unlocked {
    ByKey,
    ByRecovery,
    No {
        /// Result of each key.
        said: String,
        /// True if the recovery key was tried.
        recovery: bool,
    },
}

/// Tries the boot key, and then the recovery key if it is on the guest.
///
/// A recovery key on the guest is used: whoever can read it can read the data anyway, so refusing
/// it would protect nothing and stop the node.
pub(super) fn unlock(
    provisioner: &DiskProvisioner<'_>,
    seen: &Seen,
    encryption: &Encryption,
    attempt: &mut dyn FnMut(Way<'_>) -> Result<Opened, CommandError>,
) -> Result<Unlocked, StepError> {
    let mut said = Vec::new();
    let mut by = |way: Way<'_>, word: &str| -> Result<bool, StepError> {
        if let Some(why) = seen.bad_keys.get(word) {
            said.push(format!("{word}: {why}"));
            return Ok(false);
        }
        match attempt(way)? {
            Opened::Yes => Ok(true),
            Opened::KeyDoesNotFit(text) => {
                said.push(format!("{word}: {text}"));
                Ok(false)
            }
        }
    };
    let opened = match &encryption.key {
        KeySource::File(path) => by(Way::File(&provisioner.roots.root(path)), path)?,
        KeySource::Tpm2 => by(Way::Token, "tpm2")?,
    };
    if opened {
        return Ok(Unlocked::ByKey);
    }
    if let Some(path) = &encryption.recovery
        && by(Way::File(&provisioner.roots.root(path)), path)?
    {
        return Ok(Unlocked::ByRecovery);
    }
    let recovery = encryption.recovery.as_ref();
    Ok(Unlocked::No {
        said: said.join("; "),
        recovery: recovery.is_some_and(|path| !seen.bad_keys.contains_key(path)),
    })
}

/// Refuses containers that no available key opens, so that an admin's plan shows it. Each check
/// takes a key derivation (seconds), so reconcile runs skip it and find out when they open the
/// container.
pub(super) fn refuse_shut(provisioner: &DiskProvisioner<'_>, observed: &mut Observed) {
    let seen = &observed.seen;
    for plan in &mut observed.plan.disks {
        // A container that this plan makes will have the keys that are there.
        if plan.steps.iter().any(DiskStep::destroys) {
            continue;
        }
        let open = plan.steps.iter().find_map(|step| match step {
            DiskStep::Open {
                device,
                luks_uuid,
                encryption,
                ..
            } => Some((device.clone(), luks_uuid.clone(), encryption.clone())),
            _ => None,
        });
        let Some((device, luks_uuid, encryption)) = open else {
            continue;
        };
        let node = provisioner.roots.root(format!("/dev/{}", device.name));
        let fits = |fits| {
            if fits {
                Opened::Yes
            } else {
                Opened::KeyDoesNotFit("does not fit".to_owned())
            }
        };
        let tried = unlock(provisioner, seen, &encryption, &mut |way| match way {
            Way::File(path) => luks::fits(provisioner.commands, path, &node).map(fits),
            Way::Token => luks::token_fits(provisioner.commands, &node).map(fits),
        });
        match tried {
            Ok(Unlocked::No { said, recovery }) => {
                let shut = Shut {
                    name: &plan.name,
                    device: &device,
                    luks_uuid: &luks_uuid,
                    encryption: &encryption,
                };
                plan.refusals.push(shut.refusal(&said, recovery));
                plan.steps.clear();
            }
            Ok(_) => {}
            Err(StepError(reason)) => tracing::warn!(disk = plan.name, reason, "its key was not tried"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use virtfleet_agent_host::{FakeCommands, Roots};

    use crate::machine::BootIdentity;

    /// Tries keys of which `fitting` open the container and `bad` are missing. Returns the result
    /// and the keys tried.
    fn tried(key: &KeySource, fitting: &[&str], bad: &[&str]) -> (Unlocked, Vec<String>) {
        let roots = Roots::default();
        let boot = BootIdentity::default();
        let commands = FakeCommands::content();
        let provisioner = DiskProvisioner {
            commands: &commands,
            ..DiskProvisioner::of_guest(&roots, &boot, None)
        };
        let encryption = Encryption {
            key: key.clone(),
            recovery: Some("/r".into()),
        };
        let mut seen = Seen::default();
        for bad in bad {
            seen.bad_keys.insert((*bad).to_owned(), "no such file".into());
        }
        let mut asked = Vec::new();
        let unlocked = unlock(&provisioner, &seen, &encryption, &mut |way| {
            let word = match way {
                Way::File(path) => path.display().to_string(),
                Way::Token => "tpm2".to_owned(),
            };
            let fits = fitting.contains(&word.as_str());
            asked.push(word);
            Ok(if fits {
                Opened::Yes
            } else {
                Opened::KeyDoesNotFit("No key available".into())
            })
        });
        (unlocked.unwrap(), asked)
    }

    #[test]
    fn the_boot_key_is_tried_before_the_recovery_key() {
        for (key, word) in [(KeySource::File("/k".into()), "/k"), (KeySource::Tpm2, "tpm2")] {
            let by = |fitting: &[&str], bad: &[&str]| tried(&key, fitting, bad);
            assert_eq!(by(&[word, "/r"], &[]), (Unlocked::ByKey, vec![word.to_owned()]));
            assert_eq!(
                by(&["/r"], &[]),
                (Unlocked::ByRecovery, vec![word.to_owned(), "/r".into()])
            );
            assert_eq!(
                by(&["/r"], &[word]),
                (Unlocked::ByRecovery, vec!["/r".to_owned()])
            );
            let no = |said: String, recovery| Unlocked::No { said, recovery };
            let both = format!("{word}: No key available; /r: No key available");
            assert_eq!(by(&[], &[]).0, no(both, true));
            let gone = format!("{word}: No key available; /r: no such file");
            assert_eq!(by(&[], &["/r"]).0, no(gone, false));
        }
    }
}
