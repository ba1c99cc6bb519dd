//! `/run/virtfleet/state/node-proof.json`: the kubelet's key vouches for the agent's key. Root's
//! runs write it for the unprivileged agent (decision 0035).

use serde::{Deserialize, Serialize};
use virtfleet_wire::node_proof::NodeProof;

/// Format version of the file. Readers reject every other version.
pub const FORMAT: u32 = 1;

/// Content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeProofRecord {
    /// [`FORMAT`].
    pub v: u32,
    /// Boot in which it was written; it is invalid in another boot.
    pub boot_id: String,
    /// SHA-256 of the agent's key for which it was signed, as 64 hexadecimal digits.
    pub key_sha256: String,
    pub proof: NodeProof,
}
