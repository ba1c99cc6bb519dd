//! Reads and writes `/run/virtfleet/state/guest.json`.

use virtfleet_agent_core::pass::{FORMAT, GuestRecord};

use crate::host::{ReadError, Roots, WriteError, read_text, write_for_agent};

/// The file, by its path in the guest.
pub const GUEST_FILE: &str = "/run/virtfleet/state/guest.json";
const MAX_BYTES: usize = 256 * 1024;

/// Why there is no record of this boot. Displays as the reason; [`GUEST_FILE`] is the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadRecordError {
    /// The file.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its content.
    #[error("not a record of passes: {0}")]
    Malformed(serde_json::Error),
    /// Written by an agent of another time.
    #[error("format {0}, expected {FORMAT}")]
    Format(u32),
    /// Of another boot.
    #[error("written in another boot")]
    OtherBoot,
}

/// The record of the boot `boot_id`.
pub fn read_record(roots: &Roots, boot_id: &str) -> Result<GuestRecord, ReadRecordError> {
    let text = read_text(&roots.root(GUEST_FILE), MAX_BYTES)?;
    parse_record(text.as_bytes(), boot_id)
}

/// The same from the file's content.
pub(crate) fn parse_record(json: &[u8], boot_id: &str) -> Result<GuestRecord, ReadRecordError> {
    let record: GuestRecord = serde_json::from_slice(json).map_err(ReadRecordError::Malformed)?;
    if record.v != FORMAT {
        return Err(ReadRecordError::Format(record.v));
    }
    if record.boot_id != boot_id {
        return Err(ReadRecordError::OtherBoot);
    }
    Ok(record)
}

/// Writes it, atomically.
pub(super) fn write_record(roots: &Roots, record: &GuestRecord) -> Result<(), WriteRecordError> {
    let mut json = serde_json::to_vec(record).map_err(WriteRecordError::Encode)?;
    json.push(b'\n');
    write_for_agent(roots, GUEST_FILE, &json)?;
    Ok(())
}

/// Why the record was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteRecordError {
    /// The file.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A record that is no JSON.
    #[error("cannot encode {GUEST_FILE}")]
    Encode(#[source] serde_json::Error),
}
