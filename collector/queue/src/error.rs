//! Errors of a queue.

use std::{fmt, io, path::Path, path::PathBuf};

use crate::record::RecordId;

/// Why an operation of a queue failed. No variant means that a record which was appended before is
/// lost.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// Another process, or another [`crate::Queue`] of this one, has the folder open.
    #[error("queue {} is in use by another process; stop that process, or use another folder", folder.display())]
    Locked { folder: PathBuf },
    /// A file was written in a format that this program does not know.
    #[error(
        "{} has format version {found}, and this program reads version {known}; start the program version that wrote it, or move the folder away to begin with an empty queue",
        file.display()
    )]
    Version {
        file: PathBuf,
        found: u32,
        /// Version that this program reads and writes.
        known: u32,
    },
    /// The disk, or the quota, is full. The record was not appended. The queue does not drop older
    /// records for it: those were accepted, and the space might be taken by another program.
    #[error("no space left on the disk of {}: the record was refused; free space, or lower the limits of the queues on it ({source})", file.display())]
    DiskFull { file: PathBuf, source: io::Error },
    /// The filesystem is read-only. Records can still be read.
    #[error("the filesystem of {} is read-only: {action} failed; check the kernel log for errors of the disk ({source})", file.display())]
    ReadOnly {
        action: FileAction,
        file: PathBuf,
        source: io::Error,
    },
    /// The record is larger than the queue may ever be, or than a record may be.
    #[error("a record of {bytes} bytes was refused: the queue allows records of up to {limit} bytes")]
    TooLarge {
        /// Bytes of the record's body.
        bytes: u64,
        /// Maximum bytes of a body.
        limit: u64,
    },
    /// The record to acknowledge is not the one that `front` returned last.
    #[error("record {id} cannot be acknowledged: the oldest record is {front}")]
    NotFront {
        /// Record that was to be acknowledged.
        id: RecordId,
        /// Oldest record.
        front: RecordId,
    },
    /// Any other error of the system.
    #[error("cannot {action} {}{}: {source}", file.display(), At(*offset))]
    Io {
        action: FileAction,
        file: PathBuf,
        /// Offset in the file, in bytes, where there is one.
        offset: Option<u64>,
        source: io::Error,
    },
}

/// An operation on a file or folder of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAction {
    Create,
    List,
    Lock,
    Open,
    /// Obtain a random number for a new file.
    Randomize,
    Read,
    Remove,
    /// Make a file or folder durable.
    Sync,
    Write,
}

impl fmt::Display for FileAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::List => "list",
            Self::Lock => "lock",
            Self::Open => "open",
            Self::Randomize => "obtain a random number for",
            Self::Read => "read",
            Self::Remove => "remove",
            Self::Sync => "sync",
            Self::Write => "write",
        })
    }
}

/// Formats ` at byte N`, or nothing.
struct At(Option<u64>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(offset) => write!(f, " at byte {offset}"),
            None => Ok(()),
        }
    }
}

impl QueueError {
    pub(crate) fn system(action: FileAction, file: &Path, offset: Option<u64>, source: io::Error) -> Self {
        let file = file.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { file, source },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { action, file, source },
            _ => Self::Io {
                action,
                file,
                offset,
                source,
            },
        }
    }
}
