//! Node proof: the kubelet's key vouches for the agent's key.
//! `docs/decisions/0035-node-proof.md` has its reasons.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum size of a proof as JSON, in bytes. A chain of three RSA certificates takes about 6 KiB.
pub const MAX_NODE_PROOF_BYTES: usize = 16 * 1024;

/// First line of what a kubelet's key signs.
const CONTEXT: &str = "virtfleet node proof v1";

/// The kubelet's client certificate, and a signature with its key over the agent's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeProof {
    /// The certificate, then its issuers without the root: each is DER in base64 (RFC 4648, 4).
    pub chain: Vec<String>,
    /// How it is signed.
    pub scheme: NodeProofScheme,
    /// The signature over [`node_proof_statement`], in base64.
    pub signature: String,
}

/// Signature schemes of a [`NodeProof`], by their names in the TLS registry of IANA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeProofScheme {
    /// ECDSA with P-256 and SHA-256: kubelet's own keys.
    EcdsaSecp256r1Sha256,
    /// ECDSA with P-384 and SHA-384.
    EcdsaSecp384r1Sha384,
    /// RSA-PSS with SHA-256.
    RsaPssRsaeSha256,
    /// Ed25519.
    Ed25519,
}

/// What a kubelet's key signs: a context, so that the signature fits nothing else, and the SHA-256
/// of the agent's key (SubjectPublicKeyInfo in DER).
pub fn node_proof_statement(key_sha256: &[u8; 32]) -> Vec<u8> {
    let mut statement = CONTEXT.as_bytes().to_vec();
    statement.push(b'\n');
    statement.extend_from_slice(key_sha256);
    statement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_is_fixed() {
        let statement = node_proof_statement(&[7; 32]);
        assert!(statement.starts_with(b"virtfleet node proof v1\n\x07\x07"));
        assert_eq!(statement.len(), 24 + 32);
    }

    #[test]
    fn schemes_have_the_names_of_the_registry() {
        for (scheme, name) in [
            (
                NodeProofScheme::EcdsaSecp256r1Sha256,
                "\"ecdsa_secp256r1_sha256\"",
            ),
            (
                NodeProofScheme::EcdsaSecp384r1Sha384,
                "\"ecdsa_secp384r1_sha384\"",
            ),
            (NodeProofScheme::RsaPssRsaeSha256, "\"rsa_pss_rsae_sha256\""),
            (NodeProofScheme::Ed25519, "\"ed25519\""),
        ] {
            assert_eq!(serde_json::to_string(&scheme).unwrap(), name);
        }
    }
}
