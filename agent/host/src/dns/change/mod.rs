//! Changes the guest's DNS so that there is always a way back.
//!
//! Before the first effect, all that will be replaced is written down with what replaces it (`undo.json`, synced). Then the steps are done in
//! their order, what came of them is verified, and the journal is removed: that is the moment from which on the change counts. When a step fails,
//! or the verification does, or a crash leaves the journal behind, every file is put back in reverse, and then the services take it up in reverse.
//! What somebody else has written meanwhile is theirs and stays.

mod fixed;
mod journal;
mod reload;
mod resolved;
mod spared;
#[cfg(test)]
mod tests;
mod there;
mod undo;

use std::{fs, path::PathBuf};

use virtfleet_agent_core::dns::{
    ours,
    plan::{Service, Step},
    resolv,
    seen::{File, Link, Obstacle},
};

use crate::{Commands, Roots, Witness, read_text};
use journal::{ORIGINAL, Place, Told, Undo};
use there::There;
use undo::undo;

pub(crate) use fixed::fixed;
pub use journal::{DNS_DIRECTORY, DnsJournalError, keep_last_good, last_good, original, unfinished};

/// What resolvers read.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";
/// What temporary files of ours begin with.
const TEMPORARY: &str = ".virtfleet-";
/// More than this is no resolv.conf.
const CAP: usize = 1 << 20;

/// What was done, and verified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// In words, in their order.
    pub done: Vec<String>,
    /// Who was reloaded.
    pub reloaded: Vec<Service>,
    /// What did not go well and does not matter, e.g. a cache that was not flushed.
    pub notes: Vec<String>,
}

/// What was put back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Undone {
    /// Paths that are as they were before.
    pub restored: Vec<String>,
    /// Paths that somebody else has written meanwhile: theirs, and left alone.
    pub left: Vec<String>,
    /// Who was reloaded.
    pub reloaded: Vec<Service>,
    /// Services that did not reload: they have what they had until they are restarted.
    pub notes: Vec<String>,
}

/// Why nothing was changed, or why it is as before again.
#[derive(Debug, thiserror::Error)]
pub enum ApplyDnsError {
    /// A file cannot be replaced. Nothing was changed.
    #[error("nothing was changed: {0}")]
    Fixed(String),
    /// What is in the way cannot be written down, so it could not be put back. Nothing was changed.
    #[error("nothing was changed: {} cannot be put back later", path.display())]
    Unknown {
        /// What is in the way.
        path: PathBuf,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// A change was begun before and not finished. Nothing was changed.
    #[error(
        "nothing was changed: an earlier change was not finished; it is undone at the next pass (virtfleet-agent apply dns)"
    )]
    Unfinished,
    /// The journal.
    #[error(transparent)]
    Journal(#[from] DnsJournalError),
    /// It failed, or did not answer, and all is as before.
    #[error("put back what was there before, because {because}")]
    RolledBack {
        /// Why.
        because: String,
        /// What was put back.
        undone: Undone,
    },
    /// It failed, and so did putting back. The journal stays: the next pass tries again.
    #[error(
        "{because}; and what was there before could not be put back, which is tried again at the next pass"
    )]
    NotUndone {
        /// Why it was to be put back.
        because: String,
        /// Why that failed.
        source: Box<ApplyDnsError>,
    },
    /// A file could not be put back.
    #[error("cannot put back {}", path.display())]
    PutBack {
        /// Which.
        path: PathBuf,
        /// What the kernel says.
        source: std::io::Error,
    },
}

/// One effect.
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

/// Does the steps in their order and has them verified. `verify` asks the nameservers through what is in place now; its error is the reason why all is
/// put back.
pub fn apply(
    roots: &Roots,
    commands: &dyn Commands,
    witness: &dyn Witness,
    steps: &[Step],
    verify: &mut dyn FnMut() -> Result<(), String>,
) -> Result<Applied, ApplyDnsError> {
    apply_with(roots, commands, commands, witness, steps, verify)
}

/// The same with other commands to put back with: those have time left when the others have not.
pub fn apply_with(
    roots: &Roots,
    commands: &dyn Commands,
    to_put_back: &dyn Commands,
    witness: &dyn Witness,
    steps: &[Step],
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
    witness.at("before journal");
    let links = effects.iter().filter_map(|effect| match effect {
        Effect::Quiet(link) => Some((link, false)),
        Effect::Speak { link, .. } => Some((link, true)),
        _ => None,
    });
    let links = links.map(|(link, quiet)| Told {
        link: link.clone(),
        quiet,
    });
    let (services, links) = (services.collect(), links.collect());
    Undo::new(roots, places().collect(), services, links).write(roots)?;
    witness.at("after journal");
    let mut applied = Applied::default();
    let result = effects
        .iter()
        .try_for_each(|effect| {
            let word = one(roots, commands, effect, &mut applied)?;
            witness.at(&format!("after {word}"));
            applied.done.push(word);
            Ok(())
        })
        .and_then(|()| verify());
    witness.at("before end");
    match result {
        Ok(()) => {
            Undo::remove(roots)?;
            witness.at("after end");
            Ok(applied)
        }
        Err(because) => Err(match undo(roots, to_put_back, witness, None) {
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

/// Undoes what a crash left half done; none when there is nothing. To be called before anything is looked at.
pub fn recover(roots: &Roots, commands: &dyn Commands) -> Result<Option<Undone>, ApplyDnsError> {
    undo(roots, commands, &crate::Unwatched, None)
}

/// The same on a live node, with its links as they are: none is configured anew, and each that the change was about is told at run time what its files say again.
pub fn recover_live(
    roots: &Roots,
    commands: &dyn Commands,
    links: &[Link],
) -> Result<Option<Undone>, ApplyDnsError> {
    undo(roots, commands, &crate::Unwatched, Some(links))
}

/// The steps as effects, with what each replaces.
fn effects(roots: &Roots, steps: &[Step]) -> Result<Vec<Effect>, ApplyDnsError> {
    let mut effects: Vec<Effect> = Vec::new();
    for step in steps {
        match step {
            Step::WriteFile { path, text, mode } => put(roots, &mut effects, path, There::text(text, *mode))?,
            Step::RemoveFile { path } => put(roots, &mut effects, path, There::Nothing)?,
            Step::TakeOver { text } => {
                // Whatever others have put there since is what they mean to be there: ours alone is never kept as what was there.
                let now = resolv_conf(roots);
                if !ours::taken_over(&now) && !emptied(roots, &now)? {
                    let kept = journal::encode(&roots.root(ORIGINAL), &now)?;
                    put(roots, &mut effects, ORIGINAL, There::text(&kept, 0o600))?;
                }
                put(roots, &mut effects, RESOLV_CONF, There::text(text, 0o644))?;
            }
            Step::GiveBack { original } => {
                let there = match original {
                    File {
                        link: Some(target), ..
                    } => There::Link {
                        target: target.clone(),
                    },
                    File { text: Some(text), .. } => There::text(text, 0o644),
                    File { .. } => There::Nothing,
                };
                put(roots, &mut effects, RESOLV_CONF, there)?;
                put(roots, &mut effects, ORIGINAL, There::Nothing)?;
            }
            Step::Reload { service } => effects.push(Effect::Reload(*service)),
            Step::Revert { link } => effects.push(Effect::Revert(link.clone())),
            Step::Quiet { link } => effects.push(Effect::Quiet(link.clone())),
            Step::Speak {
                link,
                nameservers,
                searches,
            } => effects.push(Effect::Speak {
                link: link.clone(),
                nameservers: nameservers.clone(),
                searches: searches.clone(),
            }),
            Step::Flush => effects.push(Effect::Flush),
        }
    }
    Ok(effects)
}

/// Whether somebody has only left a file without nameservers there, as dhcpcd does when it ends, and what stood there before ours had some.
fn emptied(roots: &Roots, now: &File) -> Result<bool, ApplyDnsError> {
    let has = |file: &File| {
        let text = file.text.as_deref().unwrap_or_default();
        !resolv::parse(text).nameservers.is_empty()
    };
    let before = original(roots)?;
    Ok(now.link.is_none() && !has(now) && before.is_some_and(|before| before.link.is_some() || has(&before)))
}

fn put(roots: &Roots, effects: &mut Vec<Effect>, path: &str, after: There) -> Result<(), ApplyDnsError> {
    let at = roots.root(path);
    let before = There::look(&at).map_err(|source| ApplyDnsError::Unknown { path: at, source })?;
    if before != after {
        let path = path.to_owned();
        effects.push(Effect::Put(Place { path, before, after }));
    }
    Ok(())
}

/// `/etc/resolv.conf` as it is, for [`original`] and for whoever looks.
pub(crate) fn resolv_conf(roots: &Roots) -> File {
    let path = roots.root(RESOLV_CONF);
    let link = fs::read_link(&path)
        .ok()
        .and_then(|target| target.into_os_string().into_string().ok());
    let obstacle = fixed(roots, &path);
    File {
        link,
        text: read_text(&roots.root_file(RESOLV_CONF), CAP).ok(),
        fixed: obstacle.is_some(),
        obstacle,
    }
}

/// Does it, and says what in words.
fn one(
    roots: &Roots,
    commands: &dyn Commands,
    effect: &Effect,
    applied: &mut Applied,
) -> Result<String, String> {
    match effect {
        Effect::Put(place) => {
            let word = match place.after {
                There::Nothing => "remove",
                There::File { .. } => "write",
                There::Link { .. } => "link",
            };
            let done = format!("{word} {}", place.path);
            let put = place.after.put(&roots.root(&place.path));
            put.map_err(|error| format!("it was not possible to {done}: {error}"))?;
            Ok(done)
        }
        Effect::Reload(service) => {
            wait_for_links(roots, commands, *service, &applied.reloaded);
            reload::reload(roots, commands, *service).map_err(|error| error.to_string())?;
            if *service == Service::NetworkManager {
                reload::network_manager_tells(roots, commands);
            }
            applied.reloaded.push(*service);
            Ok(format!("reload {service:?}"))
        }
        Effect::Revert(link) => {
            // Undone by the reload: NetworkManager tells all of it again, and networkd what its files say.
            if !reload::before_the_bus(roots)
                && let Err(error) = reload::revert(commands, link)
            {
                applied.notes.push(error.to_string());
            }
            Ok(format!("revert {link}"))
        }
        Effect::Quiet(link) => {
            reload::quiet(commands, link).map_err(|error| error.to_string())?;
            Ok(format!("quiet {link}"))
        }
        Effect::Speak {
            link,
            nameservers,
            searches,
        } => {
            reload::speak(roots, commands, link, nameservers, searches).map_err(|error| error.to_string())?;
            reload::links_have_servers(roots, commands);
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

/// resolved takes up that ours are gone only when the links that were configured anew have their own servers again.
fn wait_for_links(roots: &Roots, commands: &dyn Commands, service: Service, reloaded: &[Service]) {
    if service == Service::Resolved && reloaded.contains(&Service::Networkd) {
        reload::links_have_servers(roots, commands);
    }
}
