//! Bounded reads that record what could not be read.

use std::{
    fmt::Display,
    fs,
    io::{self, ErrorKind},
    path::Path,
    str::FromStr,
};

use nix::errno::Errno;
use virtfleet_agent_core::virtio::Unread;

use crate::{AttributeBuffer, RereadError, Roots, attribute_buffer, attribute_once};

/// Maximum number of entries per directory.
pub(super) const MAX_ENTRIES: usize = 4096;
/// Maximum number of recorded notes.
const MAX_NOTES: usize = 256;

/// Reads files of the guest and records failures.
pub(super) struct FileReader<'a> {
    pub(super) roots: &'a Roots,
    buffer: Box<AttributeBuffer>,
    unread: Vec<Unread>,
    /// Number of notes beyond the maximum.
    more: usize,
}

/// A position in the list of notes.
#[derive(Clone, Copy)]
pub(super) struct Mark(usize, usize);

impl<'a> FileReader<'a> {
    pub(super) fn new(roots: &'a Roots) -> Self {
        Self {
            roots,
            buffer: attribute_buffer(),
            unread: Vec::new(),
            more: 0,
        }
    }

    /// The recorded failures.
    pub(super) fn unread(mut self) -> Vec<Unread> {
        if self.more > 0 {
            self.unread.push(Unread {
                what: "others".to_owned(),
                because: format!("{} more files could not be read", self.more),
            });
        }
        self.unread
    }

    pub(super) fn note(&mut self, what: &Path, because: impl Display) {
        if self.unread.len() < MAX_NOTES {
            self.unread.push(Unread {
                what: what.display().to_string(),
                because: because.to_string(),
            });
        } else {
            self.more += 1;
        }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark(self.unread.len(), self.more)
    }

    /// Drops the notes since `mark`: they are about a device that is gone.
    pub(super) fn forget(&mut self, mark: Mark) {
        self.unread.truncate(mark.0);
        self.more = mark.1;
    }

    /// The trimmed text of a file. `None` if the file is missing. Other failures are recorded.
    pub(super) fn text(&mut self, path: &Path) -> Option<String> {
        self.read(path, |error| !is_gone(error))
    }

    /// Like [`Self::text`] for a mandatory file: a missing one is recorded.
    pub(super) fn needed(&mut self, path: &Path) -> Option<String> {
        self.read(path, |_| true)
    }

    /// Like [`Self::text`] for a file whose read may fail regularly.
    pub(super) fn quiet(&mut self, path: &Path) -> Option<String> {
        self.read(path, |_| false)
    }

    fn read(&mut self, path: &Path, notes: impl Fn(&io::Error) -> bool) -> Option<String> {
        match attribute_once(path, &mut self.buffer) {
            Ok(text) => return Some(text.into_owned()),
            Err(RereadError::Io { source, .. }) if notes(&source) => self.note(path, plain(&source)),
            Err(RereadError::Io { .. }) => {}
            Err(RereadError::TooLarge { limit, .. }) => {
                self.note(path, format_args!("larger than {limit} bytes"));
            }
        }
        None
    }

    /// The parsed value. A parse error is recorded.
    pub(super) fn parsed<T, E: Display>(&mut self, path: &Path, made: Result<T, E>) -> Option<T> {
        made.map_err(|error| self.note(path, error)).ok()
    }

    /// The file's number. `None` if the file is missing.
    pub(super) fn number<N: FromStr>(&mut self, path: &Path) -> Option<N> {
        let text = self.text(path)?;
        let made = text.parse().map_err(|_| not("a number", &text));
        self.parsed(path, made)
    }

    /// Names in a directory in natural order (`eth2` before `eth10`). Empty if it is missing.
    pub(super) fn names(&mut self, folder: &Path) -> Vec<String> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                if !is_gone(&error) {
                    self.note(folder, plain(&error));
                }
                return Vec::new();
            }
        };
        let mut names = Vec::new();
        for (count, entry) in entries.enumerate() {
            if count >= MAX_ENTRIES {
                self.note(folder, format_args!("more than {MAX_ENTRIES} entries"));
                break;
            }
            match entry {
                Ok(entry) => names.extend(entry.file_name().into_string().ok()),
                Err(error) => {
                    if !is_gone(&error) {
                        self.note(folder, plain(&error));
                    }
                    break;
                }
            }
        }
        names.sort_by(|one, other| natural(one).cmp(&natural(other)));
        names
    }
}

/// Last component of a link's target, e.g. the name of a driver.
pub(super) fn link_name(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    target.file_name()?.to_str().map(str::to_owned)
}

/// Message for unexpected content.
pub(super) fn not(expected: &str, found: &str) -> String {
    let found: String = found.chars().take(40).collect();
    format!("expected {expected}, found {found:?}")
}

/// True if a file, or the device behind it, is gone.
fn is_gone(error: &io::Error) -> bool {
    let answers = [Errno::ENODEV, Errno::ENXIO, Errno::ENOTDIR, Errno::ESRCH];
    let answered = |code| answers.iter().any(|errno| *errno as i32 == code);
    error.kind() == ErrorKind::NotFound || error.raw_os_error().is_some_and(answered)
}

/// An error in the terms of [`crate::ReadError`].
fn plain(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// Sort key that orders `eth2` before `eth10`.
pub(super) fn natural(name: &str) -> Vec<(&str, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let word = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, behind) = rest.split_at(word);
        let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
        let (number, behind) = behind.split_at(digits);
        parts.push((text, number.parse().unwrap_or(0)));
        rest = behind;
    }
    parts
}
