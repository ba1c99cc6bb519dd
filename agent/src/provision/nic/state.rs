//! Reads and writes `/run/virtfleet/state/nic.json`.

use virtfleet_agent_core::nic::state::{FORMAT, NicState};

use crate::host::{ReadError, Roots, read_text};

/// The file, by its path in the guest.
pub const NIC_FILE: &str = "/run/virtfleet/state/nic.json";
const MAX_BYTES: usize = 1 << 20;

/// Why there is no state of this boot. Displays as the reason; [`NIC_FILE`] is the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadNicError {
    /// The file.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its content.
    #[error("not a state of queues: {0}")]
    Malformed(serde_json::Error),
    /// Written by an agent of another time.
    #[error("format {0}, expected {FORMAT}")]
    Format(u32),
    /// Of another boot.
    #[error("written in another boot")]
    OtherBoot,
}

impl ReadNicError {
    /// Whether nobody has written one in this boot, which is no fault.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Read(ReadError::Missing) | Self::OtherBoot)
    }
}

/// The state of the boot `boot_id`.
pub fn read_nic(roots: &Roots, boot_id: &str) -> Result<NicState, ReadNicError> {
    let text = read_text(&roots.root(NIC_FILE), MAX_BYTES)?;
    parse_nic(text.as_bytes(), boot_id)
}

/// The same from the file's content.
fn parse_nic(json: &[u8], boot_id: &str) -> Result<NicState, ReadNicError> {
    let state: NicState = serde_json::from_slice(json).map_err(ReadNicError::Malformed)?;
    if state.v != FORMAT {
        return Err(ReadNicError::Format(state.v));
    }
    if state.boot_id != boot_id {
        return Err(ReadNicError::OtherBoot);
    }
    Ok(state)
}
