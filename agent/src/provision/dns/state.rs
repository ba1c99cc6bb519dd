//! Reads and writes `/run/virtfleet/state/dns.json`.

use virtfleet_agent_core::dns::state::{DnsState, FORMAT};

use crate::host::{ReadError, Roots, WriteError, read_text, write_for_agent};

/// The file, by its path in the guest.
pub const DNS_FILE: &str = "/run/virtfleet/state/dns.json";
const MAX_BYTES: usize = 1 << 20;

/// Why there is no state of this boot. Displays as the reason; [`DNS_FILE`] is the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadDnsError {
    /// The file.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its content.
    #[error("not a state of DNS: {0}")]
    Malformed(serde_json::Error),
    /// Written by an agent of another time.
    #[error("format {0}, expected {FORMAT}")]
    Format(u32),
    /// Of another boot.
    #[error("written in another boot")]
    OtherBoot,
}

impl ReadDnsError {
    /// Whether nobody has written one in this boot, which is no fault.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Read(ReadError::Missing) | Self::OtherBoot)
    }
}

/// The state of the boot `boot_id`.
pub fn read_dns(roots: &Roots, boot_id: &str) -> Result<DnsState, ReadDnsError> {
    let text = read_text(&roots.root(DNS_FILE), MAX_BYTES)?;
    parse_dns(text.as_bytes(), boot_id)
}

/// The same from the file's content.
pub(crate) fn parse_dns(json: &[u8], boot_id: &str) -> Result<DnsState, ReadDnsError> {
    let state: DnsState = serde_json::from_slice(json).map_err(ReadDnsError::Malformed)?;
    if state.v != FORMAT {
        return Err(ReadDnsError::Format(state.v));
    }
    if state.boot_id != boot_id {
        return Err(ReadDnsError::OtherBoot);
    }
    Ok(state)
}

/// Writes it, atomically.
pub(super) fn write_dns(roots: &Roots, state: &DnsState) -> Result<(), WriteDnsError> {
    let mut json = serde_json::to_vec(state).map_err(WriteDnsError::Encode)?;
    json.push(b'\n');
    write_for_agent(roots, DNS_FILE, &json)?;
    Ok(())
}

/// Why the state was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteDnsError {
    /// The file.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A state that is no JSON.
    #[error("cannot encode {DNS_FILE}")]
    Encode(#[source] serde_json::Error),
}
