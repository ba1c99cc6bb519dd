//! Settings of the port on which agents connect.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::Span;

/// Port on which agents connect that the collector cannot dial (push).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct IngestSettings {
    /// Address and port. With port 0 the kernel chooses one.
    pub address: String,
    /// Maximum number of open connections: one for each agent that connects.
    #[schemars(range(min = 1))]
    pub max_connections: u32,
    /// Maximum number of connections that have shown no certificate of a VM yet. A further one
    /// closes the oldest of the address that has the most.
    #[schemars(range(min = 1))]
    pub max_unverified: u32,
    /// The same for each source address. A further one closes the oldest if the address is that of
    /// one VM, else it is refused: all agents behind a relay have the relay's address.
    #[schemars(range(min = 1))]
    pub max_unverified_per_peer: u32,
    /// Maximum time until a connection has shown a certificate, 1s to 1m.
    pub handshake_timeout: Span,
    /// Maximum age of a connection, at least 1s. Then the agent connects again, and its certificate
    /// is verified again; before, the collector tries to dial the VM.
    pub max_age: Span,
}

impl Default for IngestSettings {
    fn default() -> Self {
        Self {
            address: "0.0.0.0:10913".to_owned(),
            max_connections: 16_384,
            max_unverified: 512,
            max_unverified_per_peer: 64,
            handshake_timeout: Span::seconds(10),
            max_age: Span::seconds(600),
        }
    }
}
