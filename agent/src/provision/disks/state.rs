//! Reads and writes `/run/virtfleet/state/disks.json`.

use virtfleet_agent_core::disks::state::{DisksState, FORMAT};

use crate::host::{ReadError, Roots, WriteError, read_text, write_for_agent};

/// The file, by its path in the guest.
pub const DISKS_FILE: &str = "/run/virtfleet/state/disks.json";
const MAX_BYTES: usize = 1 << 20;

/// Why there is no state of this boot. Displays as the reason; [`DISKS_FILE`] is the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadDisksError {
    /// The file.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its content.
    #[error("not a state of disks: {0}")]
    Malformed(serde_json::Error),
    /// Written by an agent of another time.
    #[error("format {0}, expected {FORMAT}")]
    Format(u32),
    /// Of another boot.
    #[error("written in another boot")]
    OtherBoot,
}

impl ReadDisksError {
    /// Whether nobody has written one in this boot, which is no fault.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Read(ReadError::Missing) | Self::OtherBoot)
    }
}

/// The state of the boot `boot_id`.
pub fn read_disks(roots: &Roots, boot_id: &str) -> Result<DisksState, ReadDisksError> {
    let text = read_text(&roots.root(DISKS_FILE), MAX_BYTES)?;
    parse_disks(text.as_bytes(), boot_id)
}

/// The same from the file's content.
pub(crate) fn parse_disks(json: &[u8], boot_id: &str) -> Result<DisksState, ReadDisksError> {
    let state: DisksState = serde_json::from_slice(json).map_err(ReadDisksError::Malformed)?;
    if state.v != FORMAT {
        return Err(ReadDisksError::Format(state.v));
    }
    if state.boot_id != boot_id {
        return Err(ReadDisksError::OtherBoot);
    }
    Ok(state)
}

/// Writes it, atomically.
pub(super) fn write_disks(roots: &Roots, state: &DisksState) -> Result<(), WriteDisksError> {
    let mut json = serde_json::to_vec(state).map_err(WriteDisksError::Encode)?;
    json.push(b'\n');
    write_for_agent(roots, DISKS_FILE, &json)?;
    Ok(())
}

/// Why the state was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteDisksError {
    /// The file.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A state that is no JSON.
    #[error("cannot encode {DISKS_FILE}")]
    Encode(#[source] serde_json::Error),
}
