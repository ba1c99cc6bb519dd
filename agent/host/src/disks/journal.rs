//! The journal of secondary disks: what was begun and what was finished, on the root filesystem, for root alone.
//!
//! The folder is opened once, before anything is mounted, and used through that descriptor alone: a mount above it later hides
//! it from others and not from us. Every write is on the disk, with the folder, when the call returns.

mod erasing;

use std::{
    fs::{self, File, Metadata},
    io::{self, Read as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{OFlag, openat, renameat},
    sys::{
        stat::Mode,
        statfs::{self, FsType},
    },
    unistd::{UnlinkatFlags, unlinkat},
};
use virtfleet_agent_core::disks::journal::{Approval, AuditRecord, Entry, FORMAT, FoundByte, Journal};

use crate::{Roots, disk_mounts};

/// The folder, by its path in the guest.
pub const JOURNAL_DIRECTORY: &str = "/var/lib/virtfleet/journal";
/// Where the first and last MiB of disks that were erased by approval are kept.
pub const UNDO_DIRECTORY: &str = "/var/lib/virtfleet/journal/undo";
/// The record of what was done to disks, in that folder: one JSON document a line.
pub const AUDIT_FILE: &str = "audit.jsonl";
/// The one before, when it had grown too long.
const AUDIT_BEFORE: &str = "audit.jsonl.1";
/// No disk's name has a capital letter, so no entry has this name.
const APPROVALS: &str = "APPROVALS";
/// Bytes that were found beyond what every proof reads.
const FOUND: &str = "FOUND";
/// What is being written; a crash may leave it, and the next write replaces it.
const FRESH: &str = ".fresh";
/// The most bytes of one file that is read whole.
const MOST_BYTES: u64 = 256 << 10;
/// On the mounts of these it may lie, besides the root filesystem.
const PLACES: [&str; 2] = ["/var", "/var/lib"];
/// Filesystems that do not outlive a boot.
const MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
/// `linux/magic.h`.
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);
/// Beyond this, the audit record begins a new file. Two files are kept.
const AUDIT_BYTES: u64 = 1 << 20;

/// Why the journal cannot be used. Then nothing is formatted.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file or the folder.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// What was being done.
        step: &'static str,
        /// With what.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// It would go away with another disk, or with the memory.
    #[error(
        "{} is not on the filesystem of /, /var or /var/lib, or that is in memory or a declared disk; unmount what is mounted above it, or take that \
         mount point out of the settings",
        .0.display()
    )]
    Elsewhere(PathBuf),
    /// It belongs to somebody else, or others may write there.
    #[error("{} may be written by others than root; chown root:root and chmod 0700 it after a look at what is in it", .0.display())]
    Loose(PathBuf),
    /// A value that is no JSON.
    #[error("cannot encode the journal's entry of {name}")]
    Encode {
        /// The disk.
        name: String,
        /// Why.
        source: serde_json::Error,
    },
}

/// The open journal.
#[derive(Debug)]
pub struct JournalStore {
    folder: OwnedFd,
    path: PathBuf,
    /// Where the filesystem is mounted that it lies on.
    mount_point: String,
}

impl JournalStore {
    /// Opens it, and makes the folder (0700) where it is not there.
    pub fn open(roots: &Roots) -> Result<Self, JournalError> {
        let path = roots.root(JOURNAL_DIRECTORY);
        let at = |step| io_error(step, &path);
        if !path.is_dir() {
            make(&path).map_err(at("make"))?;
        }
        Self::existing(roots)?.ok_or_else(|| at("open")(io::ErrorKind::NotFound.into()))
    }

    /// Opens it when it is there, and changes nothing.
    pub fn existing(roots: &Roots) -> Result<Option<Self>, JournalError> {
        let path = roots.root(JOURNAL_DIRECTORY);
        let at = |step| io_error(step, &path);
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        let folder = match nix::fcntl::open(&path, flags, Mode::empty()) {
            Ok(folder) => folder,
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(at("open")(error.into())),
        };
        let metadata = File::from(folder.try_clone().map_err(at("open"))?)
            .metadata()
            .map_err(at("look at"))?;
        let root = fs::metadata(&roots.rootfs).map_err(io_error("look at", &roots.rootfs))?;
        let mut mount_point = "/".to_owned();
        if metadata.dev() != root.dev() {
            // As this process sees it, whatever the first process has mounted.
            let kind = statfs::fstatfs(&folder)
                .map_err(|error| at("look at")(error.into()))?
                .filesystem_type();
            if [statfs::TMPFS_MAGIC, RAMFS_MAGIC].contains(&kind) {
                return Err(JournalError::Elsewhere(path));
            }
            mount_point = holder(roots).ok_or_else(|| JournalError::Elsewhere(path.clone()))?;
        }
        if !ours(&metadata) {
            return Err(JournalError::Loose(path));
        }
        Ok(Some(Self {
            folder,
            path,
            mount_point,
        }))
    }

    /// Refuses when it lies on one of these, which are the mount points of declared disks: `/`, `/var` and `/var/lib` are where it may be.
    pub fn off(self, mount_points: &[&str]) -> Result<Self, JournalError> {
        if mount_points.contains(&self.mount_point.as_str()) {
            return Err(JournalError::Elsewhere(self.path));
        }
        Ok(self)
    }

    /// All that is known. A file that cannot be read is named in [`Journal::broken`], by its disk.
    pub fn load(&self) -> Result<Journal, JournalError> {
        let mut journal = Journal::default();
        for name in self.names()? {
            let Some(disk) = name.strip_suffix(".json") else {
                continue;
            };
            match self.entry(&name, disk) {
                Ok(entry) => journal.entries.push(entry),
                Err(reason) => journal.broken.push((disk.to_owned(), reason)),
            }
        }
        journal.entries.sort_by(|a, b| a.name.cmp(&b.name));
        journal.broken.sort();
        // Approvals that cannot be read are none: a person can give them again.
        journal.approvals = self.approvals().unwrap_or_else(|reason| {
            tracing::warn!(path = %self.path.join(APPROVALS).display(), reason, "approvals are not used");
            Vec::new()
        });
        // Without them a probe only reads in another order.
        journal.found = self
            .read(FOUND, MOST_BYTES)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        Ok(journal)
    }

    /// Writes where bytes were found in place of what was there before.
    pub fn write_found(&self, found: &[FoundByte]) -> Result<(), JournalError> {
        self.replace(FOUND, &encode(FOUND, found)?)
    }

    /// Writes a disk's entry in place of the one before.
    pub fn write_entry(&self, entry: &Entry) -> Result<(), JournalError> {
        let json = encode(&entry.name, entry)?;
        self.replace(&format!("{}.json", entry.name), &json)
    }

    /// Removes a disk's entry: the run that wrote it has left nothing on the disk, and there was none before.
    pub fn remove_entry(&self, name: &str) -> Result<(), JournalError> {
        let file = format!("{name}.json");
        match unlinkat(&self.folder, file.as_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => self.sync(),
            Err(error) => Err(io_error("remove", &self.path.join(file))(error.into())),
        }
    }

    /// Writes all approvals in place of those before.
    pub fn write_approvals(&self, approvals: &[Approval]) -> Result<(), JournalError> {
        self.replace(APPROVALS, &encode(APPROVALS, approvals)?)
    }

    /// Adds a line to the audit record.
    pub fn audit(&self, record: &AuditRecord) -> Result<(), JournalError> {
        let path = self.path.join(AUDIT_FILE);
        let mut line = encode(&record.name, record)?;
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_APPEND;
        let mut file = self
            .open_file(AUDIT_FILE, flags)
            .map_err(io_error("open", &path))?;
        let length = file.metadata().map_err(io_error("look at", &path))?.len();
        if length > AUDIT_BYTES {
            renameat(&self.folder, AUDIT_FILE, &self.folder, AUDIT_BEFORE)
                .map_err(|error| io_error("rename", &path)(error.into()))?;
            file = self
                .open_file(AUDIT_FILE, flags)
                .map_err(io_error("open", &path))?;
        } else if length > 0 && !ends_a_line(&file, length).map_err(io_error("read", &path))? {
            // A power cut in the middle of a line: what follows is a line of its own.
            line.insert(0, b'\n');
        }
        file.write_all(&line)
            .and_then(|()| file.sync_all())
            .map_err(io_error("write", &path))?;
        self.sync()
    }

    /// The last `most` lines of the audit record, oldest first. Lines that a power cut has cut are passed over.
    pub fn last_audit(&self, most: usize) -> Vec<AuditRecord> {
        let mut records: Vec<AuditRecord> = [AUDIT_BEFORE, AUDIT_FILE]
            .into_iter()
            .filter_map(|name| self.read(name, AUDIT_BYTES * 2).ok())
            .flat_map(|bytes| {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                text.lines()
                    .filter_map(|line| serde_json::from_str(line).ok())
                    .collect::<Vec<_>>()
            })
            .collect();
        records.split_off(records.len().saturating_sub(most))
    }

    fn names(&self) -> Result<Vec<String>, JournalError> {
        let at = |error: Errno| io_error("read", &self.path)(error.into());
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut folder = Dir::openat(&self.folder, ".", flags, Mode::empty()).map_err(at)?;
        let mut names = Vec::new();
        for entry in folder.iter() {
            let entry = entry.map_err(at)?;
            names.extend(entry.file_name().to_str().ok().map(str::to_owned));
        }
        Ok(names)
    }

    fn entry(&self, file: &str, disk: &str) -> Result<Entry, String> {
        let bytes = self
            .read(file, MOST_BYTES)
            .map_err(|error| format!("{}/{file}: {error}", self.path.display()))?;
        let value: serde_json::Value = serde_json::from_slice(&bytes)
            .map_err(|error| format!("{}/{file} is no JSON: {error}", self.path.display()))?;
        if let Some(format) = value.get("format").and_then(serde_json::Value::as_u64)
            && format != u64::from(FORMAT)
        {
            return Err(format!(
                "{}/{file} has format {format}, written by another version; this one reads {FORMAT}",
                self.path.display()
            ));
        }
        let entry: Entry = serde_json::from_value(value)
            .map_err(|error| format!("{}/{file} is no entry: {error}", self.path.display()))?;
        if entry.name == disk {
            Ok(entry)
        } else {
            Err(format!(
                "{}/{file} is of disk {:?}",
                self.path.display(),
                entry.name
            ))
        }
    }

    fn approvals(&self) -> Result<Vec<Approval>, String> {
        match self.read(APPROVALS, MOST_BYTES) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let file = self.open_file(name, OFlag::O_RDONLY)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || !ours(&metadata) {
            return Err(io::Error::other(
                "not a file that root alone may write; nobody but root should have made it",
            ));
        }
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            return Err(io::Error::other(format!("longer than {most} bytes")));
        }
        Ok(bytes)
    }

    fn replace(&self, name: &str, content: &[u8]) -> Result<(), JournalError> {
        let at = |step| io_error(step, &self.path.join(name));
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC;
        let mut file = self.open_file(FRESH, flags).map_err(at("write"))?;
        file.write_all(content)
            .and_then(|()| file.sync_all())
            .map_err(at("write"))?;
        renameat(&self.folder, FRESH, &self.folder, name).map_err(|error| at("replace")(error.into()))?;
        self.sync()
    }

    fn open_file(&self, name: &str, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = openat(&self.folder, name, flags, Mode::from_bits_truncate(0o600))?;
        Ok(File::from(file))
    }

    fn sync(&self) -> Result<(), JournalError> {
        nix::unistd::fsync(&self.folder).map_err(|error| io_error("sync", &self.path)(error.into()))
    }
}

/// Where the filesystem is mounted that has the folder, when it is one that may: a mount of `/`, `/var` or `/var/lib` that outlives a boot. Device numbers
/// do not say: each subvolume of btrfs has its own, and a nested one lies in the mount of another.
fn holder(roots: &Roots) -> Option<String> {
    let mounts = disk_mounts(roots).ok()?;
    // Of several at one place the last hides the others, and `max_by_key` takes the last.
    let mount = mounts
        .iter()
        .filter(|mount| Path::new(JOURNAL_DIRECTORY).starts_with(&mount.mount_point))
        .max_by_key(|mount| Path::new(&mount.mount_point).components().count())?;
    // Another number in the mount of `/`: a nested subvolume, or something that only we see.
    let may = match mount.mount_point.as_str() {
        "/" => mount.filesystem == "btrfs",
        place => PLACES.contains(&place) && !MEMORY.contains(&mount.filesystem.as_str()),
    };
    may.then(|| mount.mount_point.clone())
}

/// Makes the folder and those above it, each synced with its parent.
fn make(path: &Path) -> io::Result<()> {
    let absent: Vec<&Path> = path
        .ancestors()
        .take_while(|ancestor| !ancestor.as_os_str().is_empty() && !ancestor.exists())
        .collect();
    for folder in absent.into_iter().rev() {
        let mode = if folder == path { 0o700 } else { 0o755 };
        fs::DirBuilder::new().mode(mode).create(folder)?;
        if let Some(parent) = folder.parent() {
            File::open(parent)?.sync_all()?;
        }
    }
    Ok(())
}

/// Whether nobody but root, or who runs us, may have written it.
fn ours(metadata: &Metadata) -> bool {
    metadata.uid() == nix::unistd::geteuid().as_raw() && metadata.mode() & 0o022 == 0
}

fn ends_a_line(file: &File, length: u64) -> io::Result<bool> {
    use std::os::unix::fs::FileExt as _;
    let mut last = [0];
    file.read_exact_at(&mut last, length - 1)?;
    Ok(last == *b"\n")
}

fn encode<T: serde::Serialize + ?Sized>(name: &str, value: &T) -> Result<Vec<u8>, JournalError> {
    let mut json = serde_json::to_vec(value).map_err(|source| JournalError::Encode {
        name: name.to_owned(),
        source,
    })?;
    json.push(b'\n');
    Ok(json)
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError + use<> {
    let path = path.to_owned();
    move |source| JournalError::Io { step, path, source }
}

#[cfg(test)]
mod tests;
