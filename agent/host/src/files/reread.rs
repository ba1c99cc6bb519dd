//! Reads small files repeatedly: the file stays open, and each read is a `pread` from offset 0 into
//! a reused buffer. procfs and sysfs generate their text at each read from offset 0 (kernel:
//! `fs/seq_file.c`). A plain file, as in a fixture, shows what was written to it in place.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, ErrorKind},
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use nix::{errno::Errno, libc};
use rustix::fs::{CWD, Mode, OFlags, openat};

/// Default limit of a file's size in bytes: far more than any procfs file on the largest guest.
const DEFAULT_MAX_BYTES: usize = 4 << 20;
/// Initial size of a buffer in bytes, and the size of the kernel's buffer for a text in several
/// records.
const INITIAL_BYTES: usize = 4096;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RereadError {
    #[error("cannot read {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} holds more than {limit} bytes", path.display())]
    TooLarge {
        path: PathBuf,
        /// The limit in bytes.
        limit: usize,
    },
}

impl RereadError {
    /// True if the file does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == ErrorKind::NotFound)
    }
    /// True if this process has no permission.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied)
    }
    /// True if the kernel has the feature disabled (`EOPNOTSUPP`).
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.raw_os_error() == Some(Errno::EOPNOTSUPP as i32))
    }
}

/// How the kernel generates a file's text, which determines whether a read was the last one. An
/// additional read costs a system call and, for a text generated from a table, a walk through the
/// table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Generation {
    Unknown,
    /// In one piece (`single_open`, sysfs, sysctls), as for a plain file: a read that does not fill
    /// the buffer is complete.
    Single,
    /// In records of at most this many bytes (`seq_open`): a read ends before its page is full only
    /// if the next record does not fit, or at the end.
    Records(usize),
}

impl Generation {
    /// True if no data follows a read that returned `read` of `room` bytes.
    fn ends(self, read: usize, room: usize) -> bool {
        match self {
            Self::Unknown => false,
            Self::Single => read < room,
            // A record that exactly fills the kernel's page does not fit.
            Self::Records(longest) => read.saturating_add(longest) < room.min(INITIAL_BYTES),
        }
    }
    /// The default for a file with this limit: texts of less than a page are generated at once,
    /// even in records. For larger ones it is unknown.
    fn within(limit: usize) -> Self {
        if limit <= INITIAL_BYTES {
            Self::Single
        } else {
            Self::Unknown
        }
    }
}

/// A file that stays open and is read repeatedly.
#[derive(Debug)]
pub struct Reread {
    path: PathBuf,
    limit: usize,
    made: Generation,
    file: Option<File>,
    /// Fully initialized; the read bytes are at the start.
    buffer: Vec<u8>,
    length: usize,
}

impl Reread {
    /// Does not open the file before the first read.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::with_limit(path, DEFAULT_MAX_BYTES)
    }
    /// Like [`Reread::new`], with a limit of the file's size in bytes.
    pub fn with_limit(path: impl Into<PathBuf>, limit: usize) -> Self {
        Self {
            path: path.into(),
            limit,
            made: Generation::within(limit),
            file: None,
            buffer: Vec::new(),
            length: 0,
        }
    }
    /// Declares that the kernel generates the text at once: a sysctl, a sysfs file, or a procfs
    /// file opened with `single_open`. Saves a system call per read.
    #[must_use]
    pub fn single_record(mut self) -> Self {
        self.made = Generation::Single;
        self
    }
    /// Declares that the kernel generates the text in records, mostly lines, of at most `longest`
    /// bytes.
    #[must_use]
    pub fn max_record_bytes(mut self, longest: usize) -> Self {
        self.made = Generation::Records(longest);
        self
    }
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, or is larger than its limit.
    pub fn read(&mut self) -> Result<&[u8], RereadError> {
        self.refresh()?;
        Ok(self.bytes())
    }

    /// Content at the last successful [`Reread::refresh`] or [`Reread::read`].
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    /// Reads the file. If reading the open file fails (`ENODEV` after a device was removed,
    /// `ESRCH`, `ESTALE`), it is reopened once.
    ///
    /// # Errors
    /// As [`Reread::read`].
    pub fn refresh(&mut self) -> Result<(), RereadError> {
        self.length = 0;
        if let Some(file) = self.file.take() {
            match fill(&file, &self.path, &mut self.buffer, self.limit, self.made) {
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
        self.length = fill(&file, &self.path, &mut self.buffer, self.limit, self.made)?;
        self.file = Some(file);
        Ok(())
    }

    /// Reads the file as text. Invalid bytes become U+FFFD.
    ///
    /// # Errors
    /// As [`Reread::read`].
    pub fn text(&mut self) -> Result<Cow<'_, str>, RereadError> {
        self.read().map(String::from_utf8_lossy)
    }
}

/// An open directory, to read many of its small files. Files are opened relative to it, even after
/// the directory is renamed.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// Opens a directory.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat(CWD, path, flags, Mode::empty())?))
    }

    /// The trimmed text of a file with one number or word. `None` if the file is missing,
    /// unreadable, a page or larger, or not text.
    pub fn word<'buffer>(&self, name: &str, buffer: &'buffer mut Vec<u8>) -> Option<&'buffer str> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(openat(&self.0, name, flags, Mode::empty()).ok()?);
        let length = fill(
            &file,
            Path::new(name),
            buffer,
            INITIAL_BYTES - 1,
            Generation::Single,
        )
        .ok()?;
        Some(str::from_utf8(&buffer[..length]).ok()?.trim())
    }
}

/// Reads a file once into a reused buffer.
///
/// # Errors
/// The file cannot be read, or is larger than `limit`.
pub fn read_once<'buffer>(
    path: &Path,
    buffer: &'buffer mut Vec<u8>,
    limit: usize,
) -> Result<&'buffer [u8], RereadError> {
    let length = fill(&open(path)?, path, buffer, limit, Generation::within(limit))?;
    Ok(&buffer[..length])
}

fn open(path: &Path) -> Result<File, RereadError> {
    // Opening a FIFO must not wait for its writer.
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options.open(path).map_err(|source| RereadError::Io {
        path: path.to_owned(),
        source,
    })
}

fn fill(
    file: &File,
    path: &Path,
    buffer: &mut Vec<u8>,
    limit: usize,
    made: Generation,
) -> Result<usize, RereadError> {
    let mut length = 0;
    loop {
        if length > limit {
            // Release a buffer that grew for oversized content.
            *buffer = Vec::new();
            return Err(RereadError::TooLarge {
                path: path.to_owned(),
                limit,
            });
        }
        if length == buffer.len() {
            let larger = (length * 2).clamp(INITIAL_BYTES.min(limit + 1), limit + 1);
            buffer.resize(larger, 0);
        }
        match file.read_at(&mut buffer[length..], length as u64) {
            Ok(0) => return Ok(length),
            Ok(read) => {
                let room = buffer.len() - length;
                length += read;
                if made.ends(read, room) && length <= limit {
                    return Ok(length);
                }
            }
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
    fn a_file_changed_in_place_is_read_again() {
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
    fn a_huge_file_is_an_error() {
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
    fn a_failing_open_file_is_reopened() {
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
    fn the_last_read_is_recognized() {
        let whole = Generation::Single;
        assert!(whole.ends(4095, 4096) && whole.ends(5000, 8192));
        assert!(!whole.ends(4096, 4096));
        let lines = Generation::Records(200);
        assert!(lines.ends(3895, 4096) && lines.ends(10, 65536));
        // The next line may not have had room, in this buffer or in the kernel's page.
        assert!(!lines.ends(3896, 4096) && !lines.ends(3896, 65536) && !lines.ends(10, 100));
        assert!(!Generation::Unknown.ends(1, 4096));
        assert_eq!(Generation::within(4096), whole);
        assert_eq!(Generation::within(4097), Generation::Unknown);
    }

    #[test]
    fn texts_of_any_length_and_generation_are_read_completely() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let line = "x".repeat(99) + "\n";
        let mut files = [
            Reread::new(&path),
            Reread::new(&path).single_record(),
            Reread::new(&path).max_record_bytes(100),
        ];
        for lines in [0, 1, 39, 40, 41, 81, 82, 83, 200, 3] {
            fs::write(&path, line.repeat(lines)).unwrap();
            for file in &mut files {
                assert_eq!(file.read().unwrap().len(), 100 * lines, "{:?}", file.made);
            }
        }
    }

    #[test]
    fn seq_files_of_the_kernel_are_read_completely() {
        // Generated by mapping, algorithm, mount, protocol and symbol. Content that may change is
        // equal in one of many reads.
        let known = [
            ("self/maps", 512),
            ("crypto", 512),
            ("self/mountinfo", 2048),
            ("net/protocols", 256),
            ("kallsyms", 640),
        ];
        let mut pages = 0;
        for (path, longest) in known {
            let path = Path::new("/proc").join(path);
            let mut file = Reread::with_limit(&path, 64 << 20).max_record_bytes(longest);
            let same = (0..20).any(|_| {
                // Kernels may lack one or the other.
                let Ok(all) = fs::read(&path) else { return true };
                pages = pages.max(all.len() / INITIAL_BYTES);
                file.read().unwrap() == all
            });
            assert!(same, "{}", path.display());
        }
        assert!(pages >= 1, "none of them has more than a page");
    }

    #[test]
    fn files_are_read_relative_to_an_open_directory() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("eth0")).unwrap();
        fs::write(at("eth0/mtu"), "1500\n").unwrap();
        fs::write(at("eth0/large"), [b'1'; 4096]).unwrap();
        fs::write(at("eth0/bytes"), [0xff]).unwrap();
        let (folder, mut buffer) = (Folder::open(&at("eth0")).unwrap(), Vec::new());
        assert_eq!(folder.word("mtu", &mut buffer), Some("1500"));
        for name in ["none", "large", "bytes", "."] {
            assert_eq!(folder.word(name, &mut buffer), None, "{name}");
        }
        fs::rename(at("eth0"), at("lan0")).unwrap();
        fs::create_dir(at("eth0")).unwrap();
        fs::write(at("eth0/mtu"), "9000\n").unwrap();
        assert_eq!(folder.word("mtu", &mut buffer), Some("1500"));
        assert!(Folder::open(&at("none")).is_err() && Folder::open(&at("lan0/mtu")).is_err());
    }

    #[test]
    fn a_fifo_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        assert!(matches!(Reread::new(&path).read(), Err(RereadError::Io { .. })));
    }

    #[test]
    fn procfs_is_current_at_each_read() {
        let mut uptime = Reread::new("/proc/self/stat");
        assert!(!uptime.read().unwrap().is_empty());
        assert!(!uptime.read().unwrap().is_empty());
        let mut buffer = Vec::new();
        let once = read_once(Path::new("/proc/self/mountinfo"), &mut buffer, 4 << 20).unwrap();
        assert_eq!(once, fs::read("/proc/self/mountinfo").unwrap());
    }
}
