//! File operations of a queue, behind a trait so that tests inject faults and power loss.

use std::{
    fmt,
    fs::{self, DirBuilder, File},
    io::{self, IoSlice},
    os::unix::fs::{DirBuilderExt as _, FileExt, OpenOptionsExt as _},
    path::Path,
};

use rustix::{
    fs::FlockOperation,
    rand::{GetRandomFlags, getrandom},
};

/// An open file of a queue.
pub trait QueueFile: fmt::Debug {
    /// Length in bytes.
    ///
    /// # Errors
    /// Error of the system.
    fn length(&self) -> io::Result<u64>;
    /// Reads up to the length of the buffer; returns the number of bytes, 0 at the end of the file.
    ///
    /// # Errors
    /// Error of the system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes both parts, one after the other, in one call of the system; returns the number of
    /// bytes written, which may be fewer.
    ///
    /// # Errors
    /// Error of the system.
    fn write_at(&self, parts: [&[u8]; 2], offset: u64) -> io::Result<usize>;
    /// Cuts the file to this length.
    ///
    /// # Errors
    /// Error of the system.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Waits until content and length are on the disk (fdatasync).
    ///
    /// # Errors
    /// Error of the system.
    fn sync(&self) -> io::Result<()>;
}

/// The filesystem as a queue uses it.
pub trait QueueStorage {
    /// Type of an open file.
    type File: QueueFile;
    /// Creates the folder with its parents where missing, readable by the owner only, and makes the
    /// folder's entry in its parent durable.
    ///
    /// # Errors
    /// Error of the system.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;
    /// Names in the folder, in any order. Names that are not UTF-8 are left out.
    ///
    /// # Errors
    /// Error of the system.
    fn names(&self, folder: &Path) -> io::Result<Vec<String>>;
    /// Opens the file for reading and writing, creates it where missing, and locks it until it is
    /// closed. `None` if another process or handle has the lock.
    ///
    /// # Errors
    /// Error of the system.
    fn lock(&self, path: &Path) -> io::Result<Option<Self::File>>;
    /// Creates a file for reading and writing; fails if it exists.
    ///
    /// # Errors
    /// Error of the system.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    /// Opens a file for reading, and for writing if asked for.
    ///
    /// # Errors
    /// Error of the system.
    fn open(&self, path: &Path, writable: bool) -> io::Result<Self::File>;
    /// Removes a file.
    ///
    /// # Errors
    /// Error of the system.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Waits until created and removed entries of the folder are on the disk.
    ///
    /// # Errors
    /// Error of the system.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// A random number that a guest cannot guess.
    ///
    /// # Errors
    /// Error of the system.
    fn random(&self) -> io::Result<u64>;
}

/// The kernel's filesystem.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemStorage;

/// Mode of files: samples are the tenants' own.
const FILE_MODE: u32 = 0o600;

impl QueueFile for File {
    fn length(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, parts: [&[u8]; 2], offset: u64) -> io::Result<usize> {
        if parts[1].is_empty() {
            return FileExt::write_at(self, parts[0], offset);
        }
        Ok(rustix::io::pwritev(self, &parts.map(IoSlice::new), offset)?)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

impl QueueStorage for SystemStorage {
    type File = File;

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        let missing = folder.ancestors().take_while(|folder| !folder.is_dir());
        let missing: Vec<&Path> = missing.filter(|folder| !folder.as_os_str().is_empty()).collect();
        for folder in missing.into_iter().rev() {
            match DirBuilder::new().mode(0o700).create(folder) {
                // Another queue has the same parent, and created it first.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
                created => created?,
            }
            let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(())
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<File>> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(path)
    }

    fn open(&self, path: &Path, writable: bool) -> io::Result<File> {
        File::options().read(true).write(writable).open(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn random(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        getrandom(&mut bytes, GetRandomFlags::empty())?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// Fills the buffer. `Ok(false)` if the file ends before.
pub(crate) fn read_full(file: &impl QueueFile, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => return Ok(false),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Writes both parts whole: one call of the system, unless that one writes fewer bytes.
pub(crate) fn write_full(file: &impl QueueFile, parts: [&[u8]; 2], offset: u64) -> io::Result<()> {
    let total = parts[0].len() + parts[1].len();
    let mut done = 0;
    while done < total {
        let first = parts[0].get(done..).unwrap_or_default();
        let second = &parts[1][done.saturating_sub(parts[0].len())..];
        let parts = if first.is_empty() {
            [second, &[]]
        } else {
            [first, second]
        };
        match file.write_at(parts, offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{sync::Barrier, thread};

    use super::*;

    /// Queues of several streams open at the same time, below one folder that does not exist yet.
    #[test]
    fn folders_with_a_common_parent_are_created_at_the_same_time() {
        let root = tempfile::tempdir().unwrap();
        for round in 0..100 {
            let start = Barrier::new(4);
            thread::scope(|scope| {
                for stream in 0..4 {
                    let folder = root.path().join(format!("{round}/queues/{stream}"));
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        SystemStorage.create_folder(&folder).unwrap();
                    });
                }
            });
        }
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        SystemStorage.create_folder(&file.join("queue")).unwrap_err();
    }
}
