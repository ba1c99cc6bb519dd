//! A disk in memory that can lose power, fill up, and fail; for tests and fuzzing.
//!
//! It knows less than a filesystem does, so that it may lose more: without a sync, each sector of
//! each write, and each change of the folder, is on the disk or not, in any combination.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::storage::{QueueFile, QueueStorage};

/// Unit that the disk writes whole, unless it is torn.
const SECTOR: usize = 512;

/// A change of a file that was not synced.
#[derive(Debug, Clone)]
enum FileChange {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate(usize),
}

impl FileChange {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset..end].copy_from_slice(bytes);
            }
            Self::Truncate(length) => content.truncate(*length),
        }
    }

    /// Only the first half of it reaches the disk.
    fn torn(&self) -> Self {
        match self {
            Self::Write { offset, bytes } => Self::Write {
                offset: *offset,
                bytes: bytes[..bytes.len() / 2].to_vec(),
            },
            Self::Truncate(length) => Self::Truncate(*length),
        }
    }
}

/// A change of a folder that was not synced.
#[derive(Debug, Clone)]
enum EntryChange {
    Create(PathBuf, usize),
    Remove(PathBuf),
}

impl EntryChange {
    fn apply(&self, entries: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Create(path, inode) => entries.insert(path.clone(), *inode),
            Self::Remove(path) => entries.remove(path),
        };
    }
}

#[derive(Debug, Clone, Default)]
struct Inode {
    content: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<FileChange>,
}

#[derive(Debug, Default)]
struct DiskState {
    inodes: Vec<Inode>,
    entries: BTreeMap<PathBuf, usize>,
    durable_entries: BTreeMap<PathBuf, usize>,
    pending_entries: Vec<EntryChange>,
    locked: BTreeSet<usize>,
    random: u64,
    faults: DiskFaults,
    open_files: usize,
}

/// What the disk refuses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, set by name")]
pub struct DiskFaults {
    /// Maximum bytes of all files; writes beyond it are short, then fail with ENOSPC.
    pub capacity: Option<usize>,
    /// All changes fail with EROFS.
    pub read_only: bool,
    /// Syncs of files fail with EIO.
    pub sync: bool,
    /// Syncs of folders fail with EIO.
    pub sync_folder: bool,
    /// Reads that touch these bytes of the file fail with EIO.
    pub read: Option<(PathBuf, Range<u64>)>,
    /// Truncations fail with EIO.
    pub truncate: bool,
    /// Removals fail with EIO.
    pub remove: bool,
}

/// What becomes of one change at a power loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is not on the disk.
    Lost,
    /// It is on the disk.
    Written,
    /// The first half is on the disk, where it is a write of a file.
    Torn,
}

/// The disk. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct SimulatedDisk(Arc<Mutex<DiskState>>);

/// An open file of the disk.
#[derive(Debug)]
pub struct SimulatedFile {
    disk: SimulatedDisk,
    inode: usize,
    path: PathBuf,
    locks: bool,
}

impl SimulatedDisk {
    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what the disk refuses from now on.
    pub fn set_faults(&self, faults: DiskFaults) {
        self.state().faults = faults;
    }

    /// Names and content of all files, as a program sees them.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.state();
        let content =
            |(path, inode): (&PathBuf, &usize)| (path.clone(), state.inodes[*inode].content.clone());
        state.entries.iter().map(content).collect()
    }

    /// Writes a whole file, durably.
    pub fn set_file(&self, path: impl Into<PathBuf>, content: Vec<u8>) {
        let mut state = self.state();
        let inode = state.inodes.len();
        state.inodes.push(Inode {
            durable: content.clone(),
            content,
            pending: Vec::new(),
        });
        let path = path.into();
        state.entries.insert(path.clone(), inode);
        state.durable_entries.insert(path, inode);
    }

    /// Number of open files.
    pub fn open_files(&self) -> usize {
        self.state().open_files
    }

    /// The disk after a power loss. `fate` says for each change that was not synced what becomes of
    /// it: sectors of files in the order of the writes, then changes of folders.
    #[must_use]
    pub fn power_loss(&self, mut fate: impl FnMut() -> Fate) -> Self {
        let state = self.state();
        let mut inodes = Vec::new();
        for inode in &state.inodes {
            let mut content = inode.durable.clone();
            for change in &inode.pending {
                match fate() {
                    Fate::Lost => {}
                    Fate::Written => change.apply(&mut content),
                    Fate::Torn => change.torn().apply(&mut content),
                }
            }
            inodes.push(Inode {
                durable: content.clone(),
                content,
                pending: Vec::new(),
            });
        }
        let mut entries = state.durable_entries.clone();
        for change in &state.pending_entries {
            if fate() != Fate::Lost {
                change.apply(&mut entries);
            }
        }
        Self(Arc::new(Mutex::new(DiskState {
            inodes,
            durable_entries: entries.clone(),
            entries,
            random: state.random + 1_000_000,
            ..DiskState::default()
        })))
    }

    fn file(&self, state: &mut DiskState, path: &Path, inode: usize, locks: bool) -> SimulatedFile {
        state.open_files += 1;
        SimulatedFile {
            disk: self.clone(),
            inode,
            path: path.to_owned(),
            locks,
        }
    }
}

fn errno(errno: rustix::io::Errno) -> io::Error {
    errno.into()
}

impl DiskState {
    fn writable(&self) -> io::Result<()> {
        if self.faults.read_only {
            return Err(errno(rustix::io::Errno::ROFS));
        }
        Ok(())
    }

    fn used(&self) -> usize {
        let content = self
            .entries
            .values()
            .map(|inode| self.inodes[*inode].content.len());
        content.sum()
    }

    fn create(&mut self, path: &Path) -> io::Result<usize> {
        self.writable()?;
        let inode = self.inodes.len();
        self.inodes.push(Inode::default());
        self.entries.insert(path.to_owned(), inode);
        self.pending_entries
            .push(EntryChange::Create(path.to_owned(), inode));
        Ok(inode)
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        state.open_files -= 1;
        if self.locks {
            state.locked.remove(&self.inode);
        }
    }
}

impl QueueFile for SimulatedFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.state().inodes[self.inode].content.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state();
        let end = offset + buffer.len() as u64;
        if let Some((path, bad)) = &state.faults.read
            && *path == self.path
            && bad.start < end
            && offset < bad.end
        {
            return Err(errno(rustix::io::Errno::IO));
        }
        let content = &state.inodes[self.inode].content;
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = content.get(offset..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, parts: [&[u8]; 2], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        state.writable()?;
        let mut offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let mut bytes = parts.concat();
        if let Some(capacity) = state.faults.capacity {
            let grows = (offset + bytes.len()).saturating_sub(state.inodes[self.inode].content.len());
            let room = capacity.saturating_sub(state.used());
            bytes.truncate(bytes.len() - grows.saturating_sub(room).min(bytes.len()));
            if bytes.is_empty() {
                return Err(errno(rustix::io::Errno::NOSPC));
            }
        }
        let count = bytes.len();
        let inode = &mut state.inodes[self.inode];
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (sector, after) = rest.split_at(rest.len().min(SECTOR - offset % SECTOR));
            let change = FileChange::Write {
                offset,
                bytes: sector.to_vec(),
            };
            change.apply(&mut inode.content);
            inode.pending.push(change);
            offset += sector.len();
            rest = after;
        }
        Ok(count)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.writable()?;
        if state.faults.truncate {
            return Err(errno(rustix::io::Errno::IO));
        }
        let change = FileChange::Truncate(usize::try_from(length).unwrap_or(usize::MAX));
        let inode = &mut state.inodes[self.inode];
        change.apply(&mut inode.content);
        inode.pending.push(change);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let failing = state.faults.sync;
        let inode = &mut state.inodes[self.inode];
        if failing {
            // As the kernel does: what was not written is forgotten, and a later sync succeeds.
            inode.pending.clear();
            return Err(errno(rustix::io::Errno::IO));
        }
        for change in std::mem::take(&mut inode.pending) {
            change.apply(&mut inode.durable);
        }
        Ok(())
    }
}

impl QueueStorage for SimulatedDisk {
    type File = SimulatedFile;

    fn create_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        let names = state
            .entries
            .keys()
            .filter_map(|path| path.strip_prefix(folder).ok());
        Ok(names
            .filter_map(|name| name.to_str().map(ToOwned::to_owned))
            .collect())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<SimulatedFile>> {
        let mut state = self.state();
        let inode = match state.entries.get(path) {
            Some(inode) => *inode,
            None => state.create(path)?,
        };
        if !state.locked.insert(inode) {
            return Ok(None);
        }
        Ok(Some(self.file(&mut state, path, inode, true)))
    }

    fn create(&self, path: &Path) -> io::Result<SimulatedFile> {
        let mut state = self.state();
        if state.entries.contains_key(path) {
            return Err(errno(rustix::io::Errno::EXIST));
        }
        let inode = state.create(path)?;
        Ok(self.file(&mut state, path, inode, false))
    }

    fn open(&self, path: &Path, writable: bool) -> io::Result<SimulatedFile> {
        let mut state = self.state();
        if writable {
            state.writable()?;
        }
        let inode = *state
            .entries
            .get(path)
            .ok_or_else(|| errno(rustix::io::Errno::NOENT))?;
        Ok(self.file(&mut state, path, inode, false))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.writable()?;
        if state.faults.remove {
            return Err(errno(rustix::io::Errno::IO));
        }
        state
            .entries
            .remove(path)
            .ok_or_else(|| errno(rustix::io::Errno::NOENT))?;
        state.pending_entries.push(EntryChange::Remove(path.to_owned()));
        Ok(())
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.faults.sync_folder {
            return Err(errno(rustix::io::Errno::IO));
        }
        let state = &mut *state;
        for change in std::mem::take(&mut state.pending_entries) {
            change.apply(&mut state.durable_entries);
        }
        Ok(())
    }

    fn random(&self) -> io::Result<u64> {
        let mut state = self.state();
        state.random += 1;
        Ok(state.random)
    }
}
