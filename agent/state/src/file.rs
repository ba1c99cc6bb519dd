//! JSON state files below `/run`. Root writes those in `/run/virtfleet/state`, and the unprivileged
//! agent reads them. The agent writes those in `/run/virtfleet-agent`.

use std::{fmt, marker::PhantomData};

use serde::{Serialize, de::DeserializeOwned};
use virtfleet_agent_host::{ReadError, Roots, WriteError, read_text, write_atomic, write_for_agent};

/// Everyone may read the file.
const PUBLIC: u32 = 0o644;

/// A record that a [`StateFile`] holds.
pub trait StateRecord: Serialize + DeserializeOwned {
    /// Format number in the record. A reader accepts only the format that it knows.
    fn format(&self) -> u32;
    /// Boot id (`/proc/sys/kernel/random/boot_id`) of the boot in which the record was written.
    fn boot_id(&self) -> &str;
}

/// A state file with records of type `T`. Displays as its path in the guest.
pub struct StateFile<T> {
    /// Absolute path in the guest.
    pub path: &'static str,
    /// What the file holds, for errors: `a state of disks`.
    what: &'static str,
    format: u32,
    max_bytes: usize,
    record: PhantomData<fn() -> T>,
}

/// Why a state file has no usable record. Displays as the reason, without the path.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The content is not JSON of the expected shape.
    #[error("not {what}: {source}")]
    Malformed {
        /// What the file should hold.
        what: &'static str,
        /// Where parsing failed.
        source: serde_json::Error,
    },
    /// An agent of another version wrote it.
    #[error("format {found}, expected {expected}")]
    Format {
        /// Format of the record.
        found: u32,
        /// Format that this version reads.
        expected: u32,
    },
    #[error("written in another boot")]
    OtherBoot,
}

impl StateError {
    /// True if no record was written in this boot, which is not a fault.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Read(ReadError::Missing) | Self::OtherBoot)
    }
}

/// Why a state file was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteStateError {
    /// The file cannot be replaced.
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("cannot encode {path}")]
    Encode {
        /// Path of the file in the guest.
        path: &'static str,
        source: serde_json::Error,
    },
}

impl<T> StateFile<T> {
    /// Defines a file of at most `max_bytes` at `path` (absolute in the guest). `what` names its
    /// content in errors.
    pub const fn new(path: &'static str, what: &'static str, format: u32, max_bytes: usize) -> Self {
        Self {
            path,
            what,
            format,
            max_bytes,
            record: PhantomData,
        }
    }
}

impl<T: StateRecord> StateFile<T> {
    /// Reads the record of the boot `boot_id`.
    ///
    /// # Errors
    /// The file is missing, unreadable or too large, or [`StateFile::parse`] fails.
    pub fn read(&self, roots: &Roots, boot_id: &str) -> Result<T, StateError> {
        Self::of_boot(self.read_any_boot(roots)?, boot_id)
    }

    /// Reads the record of any boot.
    ///
    /// # Errors
    /// The file is missing, unreadable or too large, malformed, or of another format.
    pub fn read_any_boot(&self, roots: &Roots) -> Result<T, StateError> {
        let text = read_text(&roots.root(self.path), self.max_bytes)?;
        self.parse_any_boot(text.as_bytes())
    }

    /// Parses the file's content.
    ///
    /// # Errors
    /// The content is malformed, of another format, or of another boot than `boot_id`.
    pub fn parse(&self, json: &[u8], boot_id: &str) -> Result<T, StateError> {
        Self::of_boot(self.parse_any_boot(json)?, boot_id)
    }

    fn parse_any_boot(&self, json: &[u8]) -> Result<T, StateError> {
        let record: T = serde_json::from_slice(json).map_err(|source| StateError::Malformed {
            what: self.what,
            source,
        })?;
        if record.format() != self.format {
            return Err(StateError::Format {
                found: record.format(),
                expected: self.format,
            });
        }
        Ok(record)
    }

    fn of_boot(record: T, boot_id: &str) -> Result<T, StateError> {
        if record.boot_id() == boot_id {
            Ok(record)
        } else {
            Err(StateError::OtherBoot)
        }
    }

    /// Replaces the file atomically, readable by root and the agent's group ([`write_for_agent`]).
    /// Requires root. Returns false if the group does not exist; then only root can read the file.
    ///
    /// # Errors
    /// The record cannot be encoded, or the file cannot be replaced; then the previous content
    /// stays.
    pub fn write(&self, roots: &Roots, record: &T) -> Result<bool, WriteStateError> {
        Ok(write_for_agent(roots, self.path, &self.encode(record)?)?)
    }

    /// Replaces the file atomically, readable by everyone. For files that the agent owns.
    ///
    /// # Errors
    /// The record cannot be encoded, or the file cannot be replaced; then the previous content
    /// stays.
    pub fn write_own(&self, roots: &Roots, record: &T) -> Result<(), WriteStateError> {
        let json = self.encode(record)?;
        Ok(write_atomic(&roots.root(self.path), &json, PUBLIC, None)?)
    }

    fn encode(&self, record: &T) -> Result<Vec<u8>, WriteStateError> {
        let mut json = serde_json::to_vec(record).map_err(|source| WriteStateError::Encode {
            path: self.path,
            source,
        })?;
        json.push(b'\n');
        Ok(json)
    }
}

impl<T> fmt::Display for StateFile<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path)
    }
}

impl<T> fmt::Debug for StateFile<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StateFile").field(&self.path).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Record {
        v: u32,
        boot_id: String,
    }

    impl StateRecord for Record {
        fn format(&self) -> u32 {
            self.v
        }
        fn boot_id(&self) -> &str {
            &self.boot_id
        }
    }

    const FILE: StateFile<Record> = StateFile::new("/run/state.json", "a record", 1, 1024);

    fn error(json: &str) -> String {
        FILE.parse(json.as_bytes(), "b").unwrap_err().to_string()
    }

    #[test]
    fn only_records_of_this_boot_and_format_are_accepted() {
        let json = r#"{"v":1,"boot_id":"b"}"#;
        assert_eq!(FILE.parse(json.as_bytes(), "b").unwrap().boot_id, "b");
        assert_eq!(error(r#"{"v":1,"boot_id":"c"}"#), "written in another boot");
        assert_eq!(error(r#"{"v":9,"boot_id":"b"}"#), "format 9, expected 1");
        assert!(error("{").starts_with("not a record: "), "{}", error("{"));
    }

    #[test]
    fn a_record_is_written_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().into(),
            ..Roots::default()
        };
        assert!(FILE.read(&roots, "b").unwrap_err().is_absent());
        let record = Record {
            v: 1,
            boot_id: "b".to_owned(),
        };
        FILE.write(&roots, &record).unwrap();
        assert_eq!(FILE.read(&roots, "b").unwrap(), record);
        assert!(FILE.read(&roots, "c").unwrap_err().is_absent());
    }
}
