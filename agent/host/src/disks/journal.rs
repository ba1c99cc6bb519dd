//! The journal of secondary disks: begun and finished operations, on the root filesystem,
//! accessible only to root.
//!
//! The directory is opened once, before anything is mounted, and used only through that descriptor:
//! a later mount over it hides it from other processes, not from the agent. Each write and the
//! directory are synced when the call returns.

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
use virtfleet_agent_core::disks::{
    journal::{Approval, AuditRecord, Entry, FORMAT, FoundByte, Journal},
    known::KnownDisks,
};

use crate::{Roots, disk_mounts};

/// Path of the directory in the guest.
pub const JOURNAL_DIRECTORY: &str = "/var/lib/virtfleet/journal";
/// Directory for the first and last MiB of disks that were erased by approval.
pub const UNDO_DIRECTORY: &str = "/var/lib/virtfleet/journal/undo";
/// Audit record in that directory: one JSON document per line.
pub const AUDIT_FILE: &str = "audit.jsonl";
/// The previous audit record, rotated when it grew too long.
const PREVIOUS_AUDIT_FILE: &str = "audit.jsonl.1";
/// File with all approvals. Disk names have no capital letters, so no entry has this name.
const APPROVALS_FILE: &str = "APPROVALS";
/// File with the offsets of bytes that were found outside of the regions of every proof.
const FOUND_FILE: &str = "FOUND";
/// File with the disks that were there in the first boot.
const KNOWN_FILE: &str = "KNOWN";
/// Temporary file of a write. A crash may leave it, and the next write replaces it.
const TEMPORARY_FILE: &str = ".fresh";
/// Maximum size of a file that is read whole, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 10;
/// Mount points that may carry the journal, besides the root filesystem.
const ALLOWED_MOUNT_POINTS: [&str; 2] = ["/var", "/var/lib"];
/// Filesystems that do not survive a reboot.
const MEMORY_FILESYSTEMS: [&str; 2] = ["tmpfs", "ramfs"];
/// `linux/magic.h`.
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);
/// Maximum size of the audit record in bytes; then it is rotated. Two files are kept.
const MAX_AUDIT_BYTES: u64 = 1 << 20;

/// Why the journal is unusable. Nothing is formatted then.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Access to a file or the directory failed.
    #[error("cannot {step} {}", path.display())]
    Io {
        step: &'static str,
        /// The file or directory.
        path: PathBuf,
        source: io::Error,
    },
    /// The journal would be lost with another disk or a reboot.
    #[error(
        "{} is not on the filesystem of /, /var or /var/lib, or that filesystem is in memory or on a declared disk; unmount what is mounted over it, or remove that \
         mount point from the settings",
        .0.display()
    )]
    Elsewhere(PathBuf),
    #[error("{} can be written by users other than root; check its content, then chown root:root and chmod 0700 it", .0.display())]
    Loose(PathBuf),
    #[error("cannot encode the journal's entry of {name}")]
    Encode { name: String, source: serde_json::Error },
}

#[derive(Debug)]
pub struct JournalStore {
    folder: OwnedFd,
    path: PathBuf,
    /// Mount point of the filesystem that contains the journal.
    mount_point: String,
}

impl JournalStore {
    /// Opens the journal and creates the directory (0700) if it is missing.
    ///
    /// # Errors
    /// The directory cannot be created or opened, or is unusable ([`JournalError`]).
    pub fn open(roots: &Roots) -> Result<Self, JournalError> {
        let path = roots.root(JOURNAL_DIRECTORY);
        let at = |step| io_error(step, &path);
        if !path.is_dir() {
            make(&path).map_err(at("make"))?;
        }
        Self::existing(roots)?.ok_or_else(|| at("open")(io::ErrorKind::NotFound.into()))
    }

    /// Opens the journal if it exists, without changing anything.
    ///
    /// # Errors
    /// The directory cannot be opened or is unusable ([`JournalError`]).
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
            .map_err(at("inspect"))?;
        let root = fs::metadata(&roots.rootfs).map_err(io_error("inspect", &roots.rootfs))?;
        let mut mount_point = "/".to_owned();
        if metadata.dev() != root.dev() {
            // The filesystem as this process sees it, independent of the mounts of PID 1.
            let kind = statfs::fstatfs(&folder)
                .map_err(|error| at("inspect")(error.into()))?
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

    /// Rejects a journal on the filesystem of a declared disk, whose mount points these are. `/`,
    /// `/var` and `/var/lib` are allowed.
    ///
    /// # Errors
    /// [`JournalError::Place`] if the journal is on one of them.
    pub fn off(self, mount_points: &[&str]) -> Result<Self, JournalError> {
        if mount_points.contains(&self.mount_point.as_str()) {
            return Err(JournalError::Elsewhere(self.path));
        }
        Ok(self)
    }

    /// Reads the whole journal. Unreadable files are listed in [`Journal::broken`] by disk.
    ///
    /// # Errors
    /// The directory cannot be read.
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
        match self.known_disks() {
            Ok(known) => journal.known_disks = known,
            Err(reason) => {
                tracing::warn!(reason, "it is unknown which disks were there in the first boot");
                journal.broken.push((KNOWN_FILE.to_owned(), reason));
            }
        }
        journal.entries.sort_by(|a, b| a.name.cmp(&b.name));
        journal.broken.sort();
        // Unreadable approvals count as none; an admin can approve again.
        journal.approvals = self.approvals().unwrap_or_else(|reason| {
            tracing::warn!(path = %self.path.join(APPROVALS_FILE).display(), reason, "cannot read the approvals; ignoring them");
            Vec::new()
        });
        // Without these offsets a probe only reads in another order.
        journal.found = self
            .read(FOUND_FILE, MAX_FILE_BYTES)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        Ok(journal)
    }

    /// Replaces the recorded offsets of found bytes.
    ///
    /// # Errors
    /// The file cannot be replaced.
    pub fn write_found(&self, found: &[FoundByte]) -> Result<(), JournalError> {
        self.replace(FOUND_FILE, &encode(FOUND_FILE, found)?)
    }

    /// Replaces the list of known disks.
    ///
    /// # Errors
    /// The file cannot be replaced.
    pub fn write_known(&self, known: &KnownDisks) -> Result<(), JournalError> {
        self.replace(KNOWN_FILE, &encode(KNOWN_FILE, known)?)
    }

    /// Replaces a disk's entry.
    ///
    /// # Errors
    /// The file cannot be replaced.
    pub fn write_entry(&self, entry: &Entry) -> Result<(), JournalError> {
        let json = encode(&entry.name, entry)?;
        self.replace(&format!("{}.json", entry.name), &json)
    }

    /// Removes a disk's entry: the run that wrote it left nothing on the disk and there was no
    /// earlier entry.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove_entry(&self, name: &str) -> Result<(), JournalError> {
        let file = format!("{name}.json");
        match unlinkat(&self.folder, file.as_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => self.sync(),
            Err(error) => Err(io_error("remove", &self.path.join(file))(error.into())),
        }
    }

    /// Replaces all approvals.
    ///
    /// # Errors
    /// The file cannot be replaced.
    pub fn write_approvals(&self, approvals: &[Approval]) -> Result<(), JournalError> {
        self.replace(APPROVALS_FILE, &encode(APPROVALS_FILE, approvals)?)
    }

    /// Appends a line to the audit record.
    ///
    /// # Errors
    /// The file cannot be written or rotated.
    pub fn audit(&self, record: &AuditRecord) -> Result<(), JournalError> {
        let path = self.path.join(AUDIT_FILE);
        let mut line = encode(&record.name, record)?;
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_APPEND;
        let mut file = self
            .open_file(AUDIT_FILE, flags)
            .map_err(io_error("open", &path))?;
        let length = file.metadata().map_err(io_error("inspect", &path))?.len();
        if length > MAX_AUDIT_BYTES {
            renameat(&self.folder, AUDIT_FILE, &self.folder, PREVIOUS_AUDIT_FILE)
                .map_err(|error| io_error("rename", &path)(error.into()))?;
            file = self
                .open_file(AUDIT_FILE, flags)
                .map_err(io_error("open", &path))?;
        } else if length > 0 && !ends_a_line(&file, length).map_err(io_error("read", &path))? {
            // A power failure truncated the last line: the new line starts on its own.
            line.insert(0, b'\n');
        }
        file.write_all(&line)
            .and_then(|()| file.sync_all())
            .map_err(io_error("write", &path))?;
        self.sync()
    }

    /// The last `most` lines of the audit record, oldest first. Lines that a power failure
    /// truncated are skipped.
    pub fn last_audit(&self, most: usize) -> Vec<AuditRecord> {
        let mut records: Vec<AuditRecord> = [PREVIOUS_AUDIT_FILE, AUDIT_FILE]
            .into_iter()
            .filter_map(|name| self.read(name, MAX_AUDIT_BYTES * 2).ok())
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
            .read(file, MAX_FILE_BYTES)
            .map_err(|error| format!("{}/{file}: {error}", self.path.display()))?;
        let value: serde_json::Value = serde_json::from_slice(&bytes)
            .map_err(|error| format!("{}/{file} is not JSON: {error}", self.path.display()))?;
        if let Some(format) = value.get("format").and_then(serde_json::Value::as_u64)
            && format != u64::from(FORMAT)
        {
            return Err(format!(
                "{}/{file} has format {format}, written by another version; this one reads {FORMAT}",
                self.path.display()
            ));
        }
        let entry: Entry = serde_json::from_value(value)
            .map_err(|error| format!("{}/{file} is not a valid entry: {error}", self.path.display()))?;
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

    /// `None` if the file does not exist.
    fn known_disks(&self) -> Result<Option<KnownDisks>, String> {
        let at = |reason: String| format!("{}: {reason}", self.path.join(KNOWN_FILE).display());
        match self.read(KNOWN_FILE, MAX_FILE_BYTES) {
            // Not as an `Option`: `null` is no list.
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(list) => Ok(Some(list)),
                Err(error) => Err(at(error.to_string())),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(error.to_string())),
        }
    }

    fn approvals(&self) -> Result<Vec<Approval>, String> {
        match self.read(APPROVALS_FILE, MAX_FILE_BYTES) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let file = self.open_file(name, OFlag::O_RDONLY)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || !ours(&metadata) {
            return Err(io::Error::other("not a regular file that only root can write"));
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
        let mut file = self.open_file(TEMPORARY_FILE, flags).map_err(at("write"))?;
        file.write_all(content)
            .and_then(|()| file.sync_all())
            .map_err(at("write"))?;
        renameat(&self.folder, TEMPORARY_FILE, &self.folder, name)
            .map_err(|error| at("replace")(error.into()))?;
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

/// Mount point of the filesystem that contains the directory, if the journal may be there: a mount
/// of `/`, `/var` or `/var/lib` that survives a reboot. Device numbers are no proof: each btrfs
/// subvolume has its own number, and a nested subvolume belongs to the mount of its parent.
fn holder(roots: &Roots) -> Option<String> {
    let mounts = disk_mounts(roots).ok()?;
    // Of several mounts at one place the last hides the others, and `max_by_key` returns the last.
    let mount = mounts
        .iter()
        .filter(|mount| Path::new(JOURNAL_DIRECTORY).starts_with(&mount.mount_point))
        .max_by_key(|mount| Path::new(&mount.mount_point).components().count())?;
    // Another number in the mount of `/`: a nested subvolume, or a mount that only this process
    // has.
    let may = match mount.mount_point.as_str() {
        "/" => mount.filesystem == "btrfs",
        place => {
            ALLOWED_MOUNT_POINTS.contains(&place) && !MEMORY_FILESYSTEMS.contains(&mount.filesystem.as_str())
        }
    };
    may.then(|| mount.mount_point.clone())
}

/// Creates the directory and its parents, each synced with its parent.
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

/// True if only root, or the user that runs this process, can have written it.
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
