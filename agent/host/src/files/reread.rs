//! Reading small files again and again: the file stays open, and each reading is a `pread` from
//! offset 0 into a buffer that is kept. procfs and sysfs make their text anew at each reading from offset 0
//! (kernel: `fs/seq_file.c`); a plain file, as in a fixture tree, shows what was written into it in place.

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

/// What a file may hold at the most unless its reader says otherwise: far more than procfs prints on the largest guest.
const DEFAULT_LIMIT: usize = 4 << 20;
/// A buffer's first size, and what the kernel makes at once of a text of many pieces.
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

/// How the kernel makes a file's text, from which follows when a reading was the last one. To ask once more costs a call,
/// and where the text is made of a table, a walk through all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    /// Nobody knows.
    Somehow,
    /// As a whole (`single_open`, sysfs, sysctls), as a plain file's: what does not fill the buffer is all of it.
    AtOnce,
    /// In pieces, none of which is longer (`seq_open`): a reading ends before its page is full only where a piece no longer
    /// has room, or at the end.
    InPieces(usize),
}

impl Made {
    /// Whether nothing follows a reading that gave `read` bytes where there was room for `room`.
    fn ends(self, read: usize, room: usize) -> bool {
        match self {
            Self::Somehow => false,
            Self::AtOnce => read < room,
            // A piece that would fill the kernel's page to its last byte has no room there.
            Self::InPieces(longest) => read.saturating_add(longest) < room.min(FIRST),
        }
    }
    /// Of a file that holds at most `limit` bytes: the kernel makes less than a page at once, even of pieces. Of more it is
    /// not known how.
    fn within(limit: usize) -> Self {
        if limit <= FIRST {
            Self::AtOnce
        } else {
            Self::Somehow
        }
    }
}

/// A file that is kept open and read again.
#[derive(Debug)]
pub struct Reread {
    path: PathBuf,
    limit: usize,
    made: Made,
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
            made: Made::within(limit),
            file: None,
            buffer: Vec::new(),
            length: 0,
        }
    }
    /// The same, for a text that the kernel makes as a whole: a sysctl, a file of sysfs, or one of procfs that its source
    /// opens with `single_open`.
    #[must_use]
    pub fn made_at_once(mut self) -> Self {
        self.made = Made::AtOnce;
        self
    }
    /// The same, for a text that the kernel makes in pieces of at most `longest` bytes: lines, mostly.
    #[must_use]
    pub fn made_in_pieces(mut self, longest: usize) -> Self {
        self.made = Made::InPieces(longest);
        self
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

    /// What the file holds now, as text; bytes that are none become U+FFFD.
    pub fn text(&mut self) -> Result<Cow<'_, str>, RereadError> {
        self.read().map(String::from_utf8_lossy)
    }
}

/// A directory that is open, for readings of many of its small files: each is found from there, whatever becomes of its
/// name meanwhile.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// Errors: the kernel's word.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat(CWD, path, flags, Mode::empty())?))
    }

    /// What a file of one number or word says, without blanks at either end. None if it is not there, if the kernel
    /// refuses, or if it holds a page or more, or no text.
    pub fn word<'buffer>(&self, name: &str, buffer: &'buffer mut Vec<u8>) -> Option<&'buffer str> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(openat(&self.0, name, flags, Mode::empty()).ok()?);
        let length = fill(&file, Path::new(name), buffer, FIRST - 1, Made::AtOnce).ok()?;
        Some(str::from_utf8(&buffer[..length]).ok()?.trim())
    }
}

/// Reads a file once, into a buffer that the caller keeps.
pub fn slurp<'buffer>(
    path: &Path,
    buffer: &'buffer mut Vec<u8>,
    limit: usize,
) -> Result<&'buffer [u8], RereadError> {
    let length = fill(&open(path)?, path, buffer, limit, Made::within(limit))?;
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

fn fill(
    file: &File,
    path: &Path,
    buffer: &mut Vec<u8>,
    limit: usize,
    made: Made,
) -> Result<usize, RereadError> {
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
    fn the_last_reading_is_known_by_how_the_text_is_made() {
        let whole = Made::AtOnce;
        assert!(whole.ends(4095, 4096) && whole.ends(5000, 8192));
        assert!(!whole.ends(4096, 4096));
        let lines = Made::InPieces(200);
        assert!(lines.ends(3895, 4096) && lines.ends(10, 65536));
        // There may have been no room for the next line, in our buffer or in the kernel's page.
        assert!(!lines.ends(3896, 4096) && !lines.ends(3896, 65536) && !lines.ends(10, 100));
        assert!(!Made::Somehow.ends(1, 4096));
        assert_eq!(Made::within(4096), whole);
        assert_eq!(Made::within(4097), Made::Somehow);
    }

    #[test]
    fn texts_of_any_length_are_read_to_their_end_however_they_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let line = "x".repeat(99) + "\n";
        let mut files = [
            Reread::new(&path),
            Reread::new(&path).made_at_once(),
            Reread::new(&path).made_in_pieces(100),
        ];
        for lines in [0, 1, 39, 40, 41, 81, 82, 83, 200, 3] {
            fs::write(&path, line.repeat(lines)).unwrap();
            for file in &mut files {
                assert_eq!(file.read().unwrap().len(), 100 * lines, "{:?}", file.made);
            }
        }
    }

    #[test]
    fn what_the_kernel_makes_in_pieces_is_read_to_its_end() {
        // By mapping, algorithm, mount, protocol and symbol. Those that may change meanwhile do not in each of many readings.
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
            let mut file = Reread::with_limit(&path, 64 << 20).made_in_pieces(longest);
            let same = (0..20).any(|_| {
                // Kernels may be built without one or the other.
                let Ok(all) = fs::read(&path) else { return true };
                pages = pages.max(all.len() / FIRST);
                file.read().unwrap() == all
            });
            assert!(same, "{}", path.display());
        }
        assert!(pages >= 1, "none of them has more than a page");
    }

    #[test]
    fn words_of_a_folder_are_its_own_even_under_another_name() {
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
