//! What was on a clone before it was erased: one file a disk, `<name>.erasing`.

use std::io;

use nix::{
    errno::Errno,
    unistd::{UnlinkatFlags, unlinkat},
};
use virtfleet_agent_core::disks::clone::{EraseRecord, Fingerprint};

use super::{JournalError, JournalStore, encode, io_error};

/// Most bytes of such a file: the digests of 32 GiB of data, a bitmap, and the record.
const MAX_BYTES: u64 = 80 << 20;

impl JournalStore {
    /// Writes the record of an erasure that is about to begin: one line of JSON, then the encoded fingerprint.
    pub fn write_erasing(&self, record: &EraseRecord, print: &Fingerprint) -> Result<(), JournalError> {
        let mut bytes = encode(&record.name, record)?;
        bytes.extend(print.encode());
        self.replace(&file(&record.name), &bytes)
    }

    /// The record of an erasure that was begun and not finished. One that is damaged counts as none: then nothing is erased by it.
    pub fn erasing(&self, name: &str) -> Option<(EraseRecord, Fingerprint)> {
        let bytes = match self.read(&file(name), MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(disk = name, %error, "the record of an erasure cannot be read and is not used");
                return None;
            }
        };
        let parsed = parse(&bytes).filter(|(record, _)| record.name == name);
        if parsed.is_none() {
            tracing::warn!(disk = name, "the record of an erasure is damaged and is not used");
        }
        parsed
    }

    /// Removes the record: the disk is blank.
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
