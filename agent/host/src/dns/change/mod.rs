//! Changes the guest's DNS configuration; every change can be reverted.
//!
//! Before the first effect, the agent writes an undo record (`undo.json`, synced) with all states
//! to be replaced and their replacements. It then performs the steps in order, verifies the result,
//! and removes the record. The removal commits the change. If a step or the verification fails, or
//! a crash leaves the record behind, all files are restored in reverse order, and then the services
//! are reloaded in reverse order. Files that another program has changed meanwhile are left alone.

mod fixed;
mod journal;
mod path_state;
mod reload;
mod resolv_conf;
mod resolved;
mod runtime;
mod runtime_restore;
#[cfg(test)]
mod tests;
mod undo;

use std::path::PathBuf;

use virtfleet_agent_core::dns::{
    ours,
    plan::{DnsStep, Service},
    resolv,
    seen::{File, Link, Obstacle},
};

use crate::{Commands, FailPoints, Roots};
use journal::{LinkAnnouncement, ORIGINAL_FILE, Place, Undo};
use path_state::PathState;
use resolv_conf::MAX_RESOLV_CONF_BYTES;
use undo::undo;

pub(crate) use fixed::fixed;
pub use journal::{DNS_DIRECTORY, DnsJournalError, keep_last_good, last_good, original, unfinished};
pub use resolv_conf::RESOLV_CONF;
pub(crate) use resolv_conf::resolv_conf;

/// Prefix of the agent's temporary files.
const TEMPORARY_PREFIX: &str = ".virtfleet-";

/// A performed and verified change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Descriptions of the steps, in order.
    pub done: Vec<String>,
    pub reloaded: Vec<Service>,
    /// Failures without consequence, e.g. a cache that was not flushed.
    pub notes: Vec<String>,
}

/// A reverted change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Undone {
    pub restored: Vec<String>,
    /// Paths that another program has changed meanwhile; they were left alone.
    pub left: Vec<String>,
    pub reloaded: Vec<Service>,
    /// Services that did not reload; they keep their configuration until they are restarted.
    pub notes: Vec<String>,
}

/// Why nothing was changed, or why the change was reverted.
#[derive(Debug, thiserror::Error)]
pub enum ApplyDnsError {
    /// A file cannot be replaced. Nothing was changed.
    #[error("nothing was changed: {0}")]
    Fixed(String),
    /// The existing file cannot be recorded, so it could not be restored. Nothing was changed.
    #[error("nothing was changed: {} could not be restored later", path.display())]
    Unknown {
        /// The existing file.
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "nothing was changed: an earlier change was not finished; the next reconcile run (virtfleet-agent apply dns) reverts it"
    )]
    Unfinished,
    #[error(transparent)]
    Journal(#[from] DnsJournalError),
    /// A step or the verification failed, and everything was restored.
    #[error("restored the previous configuration, because {because}")]
    RolledBack { because: String, undone: Undone },
    /// A step failed, and so did the restore. The record stays, and the next reconcile run tries
    /// again.
    #[error(
        "{because}; the previous configuration could not be restored, and the next reconcile run tries again"
    )]
    NotUndone {
        /// The cause of the restore.
        because: String,
        /// Why the restore failed.
        source: Box<ApplyDnsError>,
    },
    /// A file could not be restored.
    #[error("cannot restore {}", path.display())]
    PutBack { path: PathBuf, source: std::io::Error },
}

enum Effect {
    Put(Place),
    Reload(Service),
    Revert(String),
    Quiet(String),
    Speak {
        link: String,
        nameservers: Vec<String>,
        searches: Vec<String>,
    },
    Flush,
}

/// Performs the steps in order and verifies them. `verify` probes the nameservers of the new
/// configuration; its error is the reason for the restore.
///
/// # Errors
/// Nothing was changed, or the change was reverted ([`ApplyDnsError`]).
pub fn apply(
    roots: &Roots,
    commands: &dyn Commands,
    fail_points: &dyn FailPoints,
    steps: &[DnsStep],
    verify: &mut dyn FnMut() -> Result<(), String>,
) -> Result<Applied, ApplyDnsError> {
    apply_with(roots, commands, commands, fail_points, steps, verify)
}

/// Like [`apply`], with separate commands for the restore: they have time left when the others have
/// not.
///
/// # Errors
/// As [`apply`].
pub fn apply_with(
    roots: &Roots,
    commands: &dyn Commands,
    to_put_back: &dyn Commands,
    fail_points: &dyn FailPoints,
    steps: &[DnsStep],
    verify: &mut dyn FnMut() -> Result<(), String>,
) -> Result<Applied, ApplyDnsError> {
    if Undo::read(roots)?.is_some() {
        return Err(ApplyDnsError::Unfinished);
    }
    let effects = effects(roots, steps)?;
    let places = || {
        effects.iter().filter_map(|effect| match effect {
            Effect::Put(place) => Some(place.clone()),
            _ => None,
        })
    };
    if let Some(obstacle) = places().find_map(|place| fixed(roots, &roots.root(&place.path))) {
        let Obstacle { because, remedy } = obstacle;
        return Err(ApplyDnsError::Fixed(format!("{because}; {remedy}")));
    }
    let services = effects.iter().filter_map(|effect| match effect {
        Effect::Reload(service) => Some(*service),
        _ => None,
    });
    fail_points.at("before journal");
    let links = effects.iter().filter_map(|effect| match effect {
        Effect::Quiet(link) => Some((link, false)),
        Effect::Speak { link, .. } => Some((link, true)),
        _ => None,
    });
    let links = links.map(|(link, quiet)| LinkAnnouncement {
        link: link.clone(),
        quiet,
    });
    let (services, links) = (services.collect(), links.collect());
    Undo::new(roots, places().collect(), services, links).write(roots)?;
    fail_points.at("after journal");
    let mut applied = Applied::default();
    let result = effects
        .iter()
        .try_for_each(|effect| {
            let word = one(roots, commands, effect, &mut applied)?;
            fail_points.at(&format!("after {word}"));
            applied.done.push(word);
            Ok(())
        })
        .and_then(|()| verify());
    fail_points.at("before end");
    match result {
        Ok(()) => {
            Undo::remove(roots)?;
            fail_points.at("after end");
            Ok(applied)
        }
        Err(because) => Err(match undo(roots, to_put_back, fail_points, None) {
            Ok(undone) => ApplyDnsError::RolledBack {
                because,
                undone: undone.unwrap_or_default(),
            },
            Err(error) => ApplyDnsError::NotUndone {
                because,
                source: Box::new(error),
            },
        }),
    }
}

/// Reverts a change that a crash left unfinished. `None` if there is none. Call it before the
/// configuration is inspected.
///
/// # Errors
/// A file cannot be restored.
pub fn recover(roots: &Roots, commands: &dyn Commands) -> Result<Option<Undone>, ApplyDnsError> {
    undo(roots, commands, &crate::NoFailPoints, None)
}

/// Like [`recover`], for a node in use: no link is reconfigured. The settings from each affected
/// link's files are applied at run time instead.
///
/// # Errors
/// As [`recover`].
pub fn recover_live(
    roots: &Roots,
    commands: &dyn Commands,
    links: &[Link],
) -> Result<Option<Undone>, ApplyDnsError> {
    undo(roots, commands, &crate::NoFailPoints, Some(links))
}

/// The steps as effects, with the states that they replace.
fn effects(roots: &Roots, steps: &[DnsStep]) -> Result<Vec<Effect>, ApplyDnsError> {
    let mut effects: Vec<Effect> = Vec::new();
    for step in steps {
        match step {
            DnsStep::WriteFile { path, text, mode } => {
                put(roots, &mut effects, path, PathState::text(text, *mode))?;
            }
            DnsStep::RemoveFile { path } => put(roots, &mut effects, path, PathState::Nothing)?,
            DnsStep::ReplaceResolvConf { text } => {
                // A file that another program has written since is the new original. The agent's
                // own file is never kept as the original.
                let now = resolv_conf(roots);
                if !ours::taken_over(&now) && !emptied(roots, &now)? {
                    let kept = journal::encode(&roots.root(ORIGINAL_FILE), &now)?;
                    put(roots, &mut effects, ORIGINAL_FILE, PathState::text(&kept, 0o600))?;
                }
                put(roots, &mut effects, RESOLV_CONF, PathState::text(text, 0o644))?;
            }
            DnsStep::RestoreResolvConf { original } => {
                let there = match original {
                    File {
                        link: Some(target), ..
                    } => PathState::Link {
                        target: target.clone(),
                    },
                    File { text: Some(text), .. } => PathState::text(text, 0o644),
                    File { .. } => PathState::Nothing,
                };
                put(roots, &mut effects, RESOLV_CONF, there)?;
                put(roots, &mut effects, ORIGINAL_FILE, PathState::Nothing)?;
            }
            DnsStep::Reload { service } => effects.push(Effect::Reload(*service)),
            DnsStep::Revert { link } => effects.push(Effect::Revert(link.clone())),
            DnsStep::SuppressLink { link } => effects.push(Effect::Quiet(link.clone())),
            DnsStep::RestoreLink {
                link,
                nameservers,
                searches,
            } => effects.push(Effect::Speak {
                link: link.clone(),
                nameservers: nameservers.clone(),
                searches: searches.clone(),
            }),
            DnsStep::Flush => effects.push(Effect::Flush),
        }
    }
    Ok(effects)
}

/// True if another program only left a file without nameservers, as dhcpcd does when it exits, and
/// the original file has some.
fn emptied(roots: &Roots, now: &File) -> Result<bool, ApplyDnsError> {
    let has = |file: &File| {
        let text = file.text.as_deref().unwrap_or_default();
        !resolv::parse(text).nameservers.is_empty()
    };
    let before = original(roots)?;
    Ok(now.link.is_none() && !has(now) && before.is_some_and(|before| before.link.is_some() || has(&before)))
}

fn put(roots: &Roots, effects: &mut Vec<Effect>, path: &str, after: PathState) -> Result<(), ApplyDnsError> {
    let at = roots.root(path);
    let before = PathState::read(&at).map_err(|source| ApplyDnsError::Unknown { path: at, source })?;
    if before != after {
        let path = path.to_owned();
        effects.push(Effect::Put(Place { path, before, after }));
    }
    Ok(())
}

/// Performs one effect and returns its description.
fn one(
    roots: &Roots,
    commands: &dyn Commands,
    effect: &Effect,
    applied: &mut Applied,
) -> Result<String, String> {
    match effect {
        Effect::Put(place) => {
            let word = match place.after {
                PathState::Nothing => "remove",
                PathState::File { .. } => "write",
                PathState::Link { .. } => "link",
            };
            let done = format!("{word} {}", place.path);
            let put = place.after.put(&roots.root(&place.path));
            put.map_err(|error| format!("cannot {done}: {error}"))?;
            Ok(done)
        }
        Effect::Reload(service) => {
            wait_for_links(roots, commands, *service, &applied.reloaded);
            reload::reload(roots, commands, *service).map_err(|error| error.to_string())?;
            if *service == Service::NetworkManager {
                reload::wait_until_network_manager_announces(roots, commands);
            }
            applied.reloaded.push(*service);
            Ok(format!("reload {service:?}"))
        }
        Effect::Revert(link) => {
            // The reload reverts it: NetworkManager announces all of it again, and networkd
            // announces what its files contain.
            if !reload::before_the_bus(roots)
                && let Err(error) = reload::revert(commands, link)
            {
                applied.notes.push(error.to_string());
            }
            Ok(format!("revert {link}"))
        }
        Effect::Quiet(link) => {
            reload::stop_announcing(commands, link).map_err(|error| error.to_string())?;
            Ok(format!("quiet {link}"))
        }
        Effect::Speak {
            link,
            nameservers,
            searches,
        } => {
            reload::announce(roots, commands, link, nameservers, searches)
                .map_err(|error| error.to_string())?;
            reload::wait_until_links_have_servers(roots, commands);
            Ok(format!("unquiet {link}"))
        }
        Effect::Flush => {
            if let Err(error) = reload::flush(commands) {
                applied.notes.push(error.to_string());
            }
            Ok("flush".to_owned())
        }
    }
}

/// systemd-resolved may drop the agent's servers only when the reconfigured links have their own
/// servers again.
fn wait_for_links(roots: &Roots, commands: &dyn Commands, service: Service, reloaded: &[Service]) {
    if service == Service::Resolved && reloaded.contains(&Service::Networkd) {
        reload::wait_until_links_have_servers(roots, commands);
    }
}
