//! Reading small files again and again (room: `agent/src/host`): the file stays open, and each reading is a `pread` from
//! offset 0 into a buffer that is kept. procfs and sysfs make their text anew at each reading from offset 0
//! (kernel: `fs/seq_file.c`); a plain file, as in a fixture tree, shows what was written into it in place.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, ErrorKind},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use nix::{errno::Errno, libc};

/// What a file may hold at the most unless its reader says otherwise: far more than procfs prints on the largest guest.
const DEFAULT_LIMIT: usize = 4 << 20;
/// A buffer's first size.
const FIRST: usize = 4096;

/// A file that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RereadError {
    /// The kernel refused.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
    /// The file is larger than anything that belongs there.
    #[error("{} holds more than {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What it may hold at the most, in bytes.
        limit: usize,
    },
}

impl RereadError {
    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == ErrorKind::NotFound)
    }
    /// Whether this process may not read it.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied)
    }
    /// Whether the kernel has the feature switched off (`EOPNOTSUPP`).
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.raw_os_error() == Some(Errno::EOPNOTSUPP as i32))
    }
}

/// A file that is kept open and read again.
#[derive(Debug)]
pub struct Reread {
    path: PathBuf,
    limit: usize,
    file: Option<File>,
    /// All of it is initialised; what was read stands in front.
    buffer: Vec<u8>,
    length: usize,
}

impl Reread {
    /// Nothing is opened before the first reading.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::with_limit(path, DEFAULT_LIMIT)
    }
    /// The same, for a file that may hold at most `limit` bytes.
    pub fn with_limit(path: impl Into<PathBuf>, limit: usize) -> Self {
        Self {
            path: path.into(),
            limit,
            file: None,
            buffer: Vec::new(),
            length: 0,
        }
    }
    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file holds now.
    pub fn read(&mut self) -> Result<&[u8], RereadError> {
        self.refresh()?;
        Ok(self.bytes())
    }

    /// What the file held at the last [`Reread::refresh`] or reading that succeeded.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    /// Reads the file. An open file that fails (`ENODEV` after a device went away, `ESRCH`, `ESTALE`) is opened again
    /// once.
    pub fn refresh(&mut self) -> Result<(), RereadError> {
        self.length = 0;
        if let Some(file) = self.file.take() {
            match fill(&file, &self.path, &mut self.buffer, self.limit) {
                Ok(length) => {
                    self.file = Some(file);
                    self.length = length;
                    return Ok(());
                }
                Err(too_large @ RereadError::TooLarge { .. }) => return Err(too_large),
                Err(RereadError::Io { .. }) => {}
            }
        }
        let file = open(&self.path)?;
        self.length = fill(&file, &self.path, &mut self.buffer, self.limit)?;
        self.file = Some(file);
        Ok(())
    }

    /// What the file holds now, as text; bytes that are none become U+FFFD.
    pub fn text(&mut self) -> Result<Cow<'_, str>, RereadError> {
        self.read().map(String::from_utf8_lossy)
    }
}

/// Reads a file once, into a buffer that the caller keeps.
pub fn slurp<'buffer>(
    path: &Path,
    buffer: &'buffer mut Vec<u8>,
    limit: usize,
) -> Result<&'buffer [u8], RereadError> {
    let length = fill(&open(path)?, path, buffer, limit)?;
    Ok(&buffer[..length])
}

fn open(path: &Path) -> Result<File, RereadError> {
    // A FIFO in the place of a file must not make us wait for its writer.
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options.open(path).map_err(|source| RereadError::Io {
        path: path.to_owned(),
        source,
    })
}

fn fill(file: &File, path: &Path, buffer: &mut Vec<u8>, limit: usize) -> Result<usize, RereadError> {
    let mut length = 0;
    loop {
        if length > limit {
            // A buffer that grew for nonsense is given back.
            *buffer = Vec::new();
            return Err(RereadError::TooLarge {
                path: path.to_owned(),
                limit,
            });
        }
        if length == buffer.len() {
            let larger = (length * 2).clamp(FIRST.min(limit + 1), limit + 1);
            buffer.resize(larger, 0);
        }
        match file.read_at(&mut buffer[length..], length as u64) {
            Ok(0) => return Ok(length),
            Ok(read) => length += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(source) => {
                return Err(RereadError::Io {
                    path: path.to_owned(),
                    source,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_changed_in_place_is_read_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut file = Reread::new(&path);
        assert!(file.read().unwrap_err().is_missing());
        for text in [&b"one"[..], b"", &vec![b'x'; 20_000], b"short"] {
            fs::write(&path, text).unwrap();
            assert_eq!(file.read().unwrap(), text);
        }
    }

    #[test]
    fn a_huge_file_is_an_error_and_not_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut file = Reread::with_limit(&path, 10_000);
        fs::write(&path, [b'x'; 10_000]).unwrap();
        assert_eq!(file.read().unwrap().len(), 10_000);
        fs::write(&path, [b'x'; 10_001]).unwrap();
        let error = file.read().unwrap_err();
        assert!(
            error.to_string().ends_with("f holds more than 10000 bytes"),
            "{error}"
        );
        assert!(file.buffer.is_empty());
        let mut endless = Reread::new("/dev/zero");
        assert!(matches!(endless.read(), Err(RereadError::TooLarge { .. })));
        fs::write(&path, "well again").unwrap();
        assert_eq!(file.read().unwrap(), b"well again");
    }

    #[test]
    fn an_open_file_that_fails_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "new").unwrap();
        let mut file = Reread::new(&path);
        // A directory opens, and every reading fails with EISDIR.
        file.file = Some(File::open(dir.path()).unwrap());
        assert_eq!(file.read().unwrap(), b"new");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        file.file = None;
        assert!(matches!(file.read(), Err(RereadError::Io { .. })));
    }

    #[test]
    fn a_fifo_is_an_error_and_not_a_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        assert!(matches!(Reread::new(&path).read(), Err(RereadError::Io { .. })));
    }

    #[test]
    fn procfs_is_fresh_at_each_reading() {
        let mut uptime = Reread::new("/proc/self/stat");
        assert!(!uptime.read().unwrap().is_empty());
        assert!(!uptime.read().unwrap().is_empty());
        let mut buffer = Vec::new();
        let once = slurp(Path::new("/proc/self/mountinfo"), &mut buffer, 4 << 20).unwrap();
        assert_eq!(once, fs::read("/proc/self/mountinfo").unwrap());
    }
}
