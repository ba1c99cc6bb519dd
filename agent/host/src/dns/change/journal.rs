//! `/var/lib/virtfleet/dns`: what a change would undo, what was there before the first one, and the last configuration that was verified.
//! Root's alone; every write is on the disk when the call returns.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use virtfleet_agent_core::dns::{ResolvConf, ours, plan::Service, seen::File};

use super::there::{There, make_folders};
use crate::{ReadError, Roots, read_bounded, read_text, remove_durably};

/// The folder, by its path in the guest.
pub const DNS_DIRECTORY: &str = "/var/lib/virtfleet/dns";
/// What a change under way would undo.
pub(super) const UNDO: &str = "/var/lib/virtfleet/dns/undo.json";
/// What was in the place of `/etc/resolv.conf` before the first change ([`File`]).
pub(super) const ORIGINAL: &str = "/var/lib/virtfleet/dns/original.json";
/// The last configuration that was verified ([`ResolvConf`]).
const LAST_GOOD: &str = "/var/lib/virtfleet/dns/last-good.json";
/// The version of the undo journal's shape.
const FORMAT: u32 = 1;
/// The most bytes of one file. The undo journal has the text of every file that is changed.
const CAP: usize = 4 << 20;

/// Why a file of the folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DnsJournalError {
    /// The kernel refuses.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// What was being done.
        step: &'static str,
        /// With what.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// It is there, and is not what we write.
    #[error("{} {reason}; look at /etc/resolv.conf and at what is in it, then remove it", path.display())]
    Odd {
        /// The file.
        path: PathBuf,
        /// In words.
        reason: String,
    },
}

/// A change under way: what it replaces, and who has to take up what is put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Undo {
    format: u32,
    /// The boot in which it was begun: after another one, services have read what was written, and have forgotten what they were told.
    #[serde(default)]
    boot_id: String,
    /// In the order in which they are changed.
    pub(super) places: Vec<Place>,
    /// In the order in which they are reloaded.
    pub(super) services: Vec<Service>,
    /// Links that networkd tells of, or does not, since the change.
    #[serde(default)]
    pub(super) links: Vec<Told>,
}

/// What networkd told of a link before the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    /// The link's name.
    pub(super) link: String,
    /// Whether it told nothing, because we had it so.
    pub(super) quiet: bool,
}

/// One file or link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// By its path in the guest.
    pub(super) path: String,
    /// What was there.
    pub(super) before: There,
    /// What is put there.
    pub(super) after: There,
}

impl Undo {
    pub(super) fn new(roots: &Roots, places: Vec<Place>, services: Vec<Service>, links: Vec<Told>) -> Self {
        Self {
            format: FORMAT,
            boot_id: boot_id(roots),
            places,
            services,
            links,
        }
    }

    /// After a reset what was to be done without having links configured anew is theirs to read again: networkd has started with the files that are put back.
    /// In the order of the change: a link is silenced after systemd-resolved has ours, and speaks before that forgets them.
    pub(super) fn after_a_boot(&mut self, roots: &Roots) {
        if self.boot_id == boot_id(roots) {
            return;
        }
        self.links.clear();
        let of_links = |place: &&Place| place.path.starts_with(ours::NETWORKD);
        if let Some(place) = self.places.iter().find(of_links)
            && !self.services.contains(&Service::Networkd)
        {
            let at = if place.after == There::Nothing {
                0
            } else {
                self.services.len()
            };
            self.services.insert(at, Service::Networkd);
        }
    }

    pub(super) fn write(&self, roots: &Roots) -> Result<(), DnsJournalError> {
        write(roots, UNDO, self)
    }

    /// The one that was begun and not finished.
    pub(super) fn read(roots: &Roots) -> Result<Option<Self>, DnsJournalError> {
        let undo: Option<Self> = read(roots, UNDO)?;
        match undo {
            Some(undo) if undo.format != FORMAT => Err(DnsJournalError::Odd {
                path: roots.root(UNDO),
                reason: format!("has format {}, and this version reads {FORMAT}", undo.format),
            }),
            other => Ok(other),
        }
    }

    /// It is finished.
    pub(super) fn remove(roots: &Roots) -> Result<(), DnsJournalError> {
        let path = roots.root(UNDO);
        remove_durably(&path).map_err(io_error("remove", &path)).map(drop)
    }
}

/// Keeps what was verified, for the day on which nothing else answers; false when that was kept already. To be called whenever a pass has verified
/// what is in use, also when nothing was changed.
pub fn keep_last_good(roots: &Roots, conf: &ResolvConf) -> Result<bool, DnsJournalError> {
    // One that cannot be read is replaced.
    if last_good(roots).is_ok_and(|kept| kept.as_ref() == Some(conf)) {
        return Ok(false);
    }
    write(roots, LAST_GOOD, conf).map(|()| true)
}

/// What was verified last, in any boot.
pub fn last_good(roots: &Roots) -> Result<Option<ResolvConf>, DnsJournalError> {
    read(roots, LAST_GOOD)
}

/// What was in the place of `/etc/resolv.conf` before our first change; none when it is not taken over.
pub fn original(roots: &Roots) -> Result<Option<File>, DnsJournalError> {
    read(roots, ORIGINAL)
}

/// Whether a change was begun and not finished: [`super::recover`] undoes it.
pub fn unfinished(roots: &Roots) -> bool {
    roots.root(UNDO).exists()
}

/// A value as it is written.
pub(super) fn encode<T: Serialize>(path: &Path, value: &T) -> Result<String, DnsJournalError> {
    let json = serde_json::to_string_pretty(value)
        .map_err(io::Error::from)
        .map_err(io_error("encode", path))?;
    Ok(json + "\n")
}

/// The kernel's name for this boot; nothing where it cannot be read.
fn boot_id(roots: &Roots) -> String {
    let text = read_text(&roots.proc("sys/kernel/random/boot_id"), 100).unwrap_or_default();
    text.trim().to_owned()
}

/// Makes the folder root's alone, where it is not there.
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
    There::text(&encode(&path, value)?, 0o600)
        .put(&path)
        .map_err(io_error("write", &path))
}

fn read<T: DeserializeOwned>(roots: &Roots, path: &str) -> Result<Option<T>, DnsJournalError> {
    let path = roots.root(path);
    let odd = |reason: String| DnsJournalError::Odd {
        path: path.clone(),
        reason,
    };
    let bytes = match read_bounded(&path, CAP) {
        Ok(bytes) => bytes,
        Err(ReadError::Missing) => return Ok(None),
        Err(error) => return Err(odd(format!("cannot be read: {error}"))),
    };
    let metadata = fs::symlink_metadata(&path).map_err(io_error("look at", &path))?;
    if metadata.uid() != nix::unistd::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
        return Err(odd("may be written by others than root".to_owned()));
    }
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| odd(format!("is not what was written: {error}")))
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DnsJournalError + use<> {
    let path = path.to_owned();
    move |source| DnsJournalError::Io { step, path, source }
}
