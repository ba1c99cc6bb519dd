//! `/var/lib/virtfleet/dns`: the undo record of a change in progress, the state before the first
//! change, and the last verified configuration. Accessible only to root; each write is synced when
//! the call returns.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use virtfleet_agent_core::dns::{ResolvConf, ours, plan::Service, seen::File};

use super::path_state::{PathState, make_folders};
use crate::{ReadError, Roots, read_bounded, read_text, remove_durably};

/// Path of the directory in the guest.
pub const DNS_DIRECTORY: &str = "/var/lib/virtfleet/dns";
/// Undo record of a change in progress.
pub(super) const UNDO_FILE: &str = "/var/lib/virtfleet/dns/undo.json";
/// What was at `/etc/resolv.conf` before the first change ([`File`]).
pub(super) const ORIGINAL_FILE: &str = "/var/lib/virtfleet/dns/original.json";
/// The last verified configuration ([`ResolvConf`]).
const LAST_GOOD_FILE: &str = "/var/lib/virtfleet/dns/last-good.json";
/// Format version of the undo record.
const FORMAT: u32 = 1;
/// Maximum size of one file in bytes. The undo record contains the text of every changed file.
const MAX_FILE_BYTES: usize = 4 << 20;

/// Why a file of the directory is unusable.
#[derive(Debug, thiserror::Error)]
pub enum DnsJournalError {
    #[error("cannot {step} {}", path.display())]
    Io {
        step: &'static str,
        /// The file or directory.
        path: PathBuf,
        source: io::Error,
    },
    /// The file exists but was not written by the agent, or is damaged.
    #[error("{} {reason}; check its content and /etc/resolv.conf, then remove it", path.display())]
    Odd { path: PathBuf, reason: String },
}

/// A change in progress: the replaced files, and the services to reload after a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Undo {
    format: u32,
    /// Boot id of the boot in which the change was begun. After a reboot, services have read the
    /// new files and have lost their runtime configuration.
    #[serde(default)]
    boot_id: String,
    /// In the order of the changes.
    pub(super) places: Vec<Place>,
    /// In the order of the reloads.
    pub(super) services: Vec<Service>,
    /// Links whose DNS announcements by networkd were changed.
    #[serde(default)]
    pub(super) links: Vec<LinkAnnouncement>,
}

/// What networkd announced for a link before the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LinkAnnouncement {
    pub(super) link: String,
    /// True if networkd already announced nothing, because of the agent.
    pub(super) quiet: bool,
}

/// One file or link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// Path in the guest.
    pub(super) path: String,
    pub(super) before: PathState,
    pub(super) after: PathState,
}

impl Undo {
    pub(super) fn new(
        roots: &Roots,
        places: Vec<Place>,
        services: Vec<Service>,
        links: Vec<LinkAnnouncement>,
    ) -> Self {
        Self {
            format: FORMAT,
            boot_id: boot_id(roots),
            places,
            services,
            links,
        }
    }

    /// Adapts the record to a reboot: networkd has started with the files that are about to be
    /// restored, so services reload them and links need no reconfiguration. The order is that of
    /// the change: a link is silenced after systemd-resolved has the agent's servers, and announces
    /// again before they are removed.
    pub(super) fn after_a_boot(&mut self, roots: &Roots) {
        if self.boot_id == boot_id(roots) {
            return;
        }
        self.links.clear();
        let of_links = |place: &&Place| place.path.starts_with(ours::NETWORKD);
        if let Some(place) = self.places.iter().find(of_links)
            && !self.services.contains(&Service::Networkd)
        {
            let at = if place.after == PathState::Nothing {
                0
            } else {
                self.services.len()
            };
            self.services.insert(at, Service::Networkd);
        }
    }

    pub(super) fn write(&self, roots: &Roots) -> Result<(), DnsJournalError> {
        write(roots, UNDO_FILE, self)
    }

    /// The record of an unfinished change.
    pub(super) fn read(roots: &Roots) -> Result<Option<Self>, DnsJournalError> {
        let undo: Option<Self> = read(roots, UNDO_FILE)?;
        match undo {
            Some(undo) if undo.format != FORMAT => Err(DnsJournalError::Odd {
                path: roots.root(UNDO_FILE),
                reason: format!("has format {}, but this version reads {FORMAT}", undo.format),
            }),
            other => Ok(other),
        }
    }

    /// Removes the record: the change is finished.
    pub(super) fn remove(roots: &Roots) -> Result<(), DnsJournalError> {
        let path = roots.root(UNDO_FILE);
        remove_durably(&path).map_err(io_error("remove", &path)).map(drop)
    }
}

/// Saves a verified configuration as a fallback for a time when no other nameserver answers.
/// Returns false if it was already saved. Call it after every reconcile run that verified the
/// configuration in use, even if nothing changed.
///
/// # Errors
/// The file cannot be written.
pub fn keep_last_good(roots: &Roots, conf: &ResolvConf) -> Result<bool, DnsJournalError> {
    // An unreadable file is replaced.
    if last_good(roots).is_ok_and(|kept| kept.as_ref() == Some(conf)) {
        return Ok(false);
    }
    write(roots, LAST_GOOD_FILE, conf).map(|()| true)
}

/// The last verified configuration, from any boot.
///
/// # Errors
/// The file cannot be read, or its content is unexpected.
pub fn last_good(roots: &Roots) -> Result<Option<ResolvConf>, DnsJournalError> {
    read(roots, LAST_GOOD_FILE)
}

/// What was at `/etc/resolv.conf` before the agent's first change. `None` if the agent does not
/// manage the file.
///
/// # Errors
/// As [`last_good`].
pub fn original(roots: &Roots) -> Result<Option<File>, DnsJournalError> {
    read(roots, ORIGINAL_FILE)
}

/// True if a change was begun and not finished; [`super::recover`] reverts it.
pub fn unfinished(roots: &Roots) -> bool {
    roots.root(UNDO_FILE).exists()
}

/// The JSON text of a value.
pub(super) fn encode<T: Serialize>(path: &Path, value: &T) -> Result<String, DnsJournalError> {
    let json = serde_json::to_string_pretty(value)
        .map_err(io::Error::from)
        .map_err(io_error("encode", path))?;
    Ok(json + "\n")
}

/// Boot id; empty if it cannot be read.
fn boot_id(roots: &Roots) -> String {
    let text = read_text(&roots.proc("sys/kernel/random/boot_id"), 100).unwrap_or_default();
    text.trim().to_owned()
}

/// Creates the directory with mode 0700 if it is missing.
fn make(roots: &Roots) -> Result<(), DnsJournalError> {
    let path = roots.root(DNS_DIRECTORY);
    if path.is_dir() {
        return Ok(());
    }
    make_folders(&path)
        .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o700)))
        .map_err(io_error("make", &path))
}

fn write<T: Serialize>(roots: &Roots, path: &str, value: &T) -> Result<(), DnsJournalError> {
    make(roots)?;
    let path = roots.root(path);
    PathState::text(&encode(&path, value)?, 0o600)
        .put(&path)
        .map_err(io_error("write", &path))
}

fn read<T: DeserializeOwned>(roots: &Roots, path: &str) -> Result<Option<T>, DnsJournalError> {
    let path = roots.root(path);
    let unexpected = |reason: String| DnsJournalError::Odd {
        path: path.clone(),
        reason,
    };
    let bytes = match read_bounded(&path, MAX_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(ReadError::Missing) => return Ok(None),
        Err(error) => return Err(unexpected(format!("cannot be read: {error}"))),
    };
    let metadata = fs::symlink_metadata(&path).map_err(io_error("inspect", &path))?;
    if metadata.uid() != nix::unistd::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
        return Err(unexpected("can be written by users other than root".to_owned()));
    }
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| unexpected(format!("is damaged: {error}")))
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DnsJournalError + use<> {
    let path = path.to_owned();
    move |source| DnsJournalError::Io { step, path, source }
}
