//! Content of a clone before its erasure: one file per disk, `<name>.erasing`.

use std::io;

use nix::{
    errno::Errno,
    unistd::{UnlinkatFlags, unlinkat},
};
use virtfleet_agent_core::disks::clone::{EraseRecord, Fingerprint};

use super::{JournalError, JournalStore, encode, io_error};

/// Maximum size of such a file in bytes: digests of 32 GiB of data, a bitmap and the record.
const MAX_BYTES: u64 = 80 << 20;

impl JournalStore {
    /// Writes the record of an erasure that is about to begin: one line of JSON and the encoded
    /// fingerprint.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_erasing(&self, record: &EraseRecord, print: &Fingerprint) -> Result<(), JournalError> {
        let mut bytes = encode(&record.name, record)?;
        bytes.extend(print.encode());
        self.replace(&file(&record.name), &bytes)
    }

    /// The record of an unfinished erasure. A damaged record counts as none; then the erasure is
    /// not continued.
    pub fn erasing(&self, name: &str) -> Option<(EraseRecord, Fingerprint)> {
        let bytes = match self.read(&file(name), MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(disk = name, %error, "cannot read the record of an erasure; ignoring it");
                return None;
            }
        };
        let parsed = parse(&bytes).filter(|(record, _)| record.name == name);
        if parsed.is_none() {
            tracing::warn!(disk = name, "the record of an erasure is damaged; ignoring it");
        }
        parsed
    }

    /// Removes the record after the disk is blank.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove_erasing(&self, name: &str) -> Result<(), JournalError> {
        let file = file(name);
        match unlinkat(&self.folder, file.as_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => self.sync(),
            Err(error) => Err(io_error("remove", &self.path.join(file))(error.into())),
        }
    }
}

fn file(name: &str) -> String {
    format!("{name}.erasing")
}

fn parse(bytes: &[u8]) -> Option<(EraseRecord, Fingerprint)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let record = serde_json::from_slice(&bytes[..end]).ok()?;
    Some((record, Fingerprint::decode(&bytes[end + 1..])?))
}
