//! The agent's key: ECDSA P-256, made in the guest. It signs CSRs and the certificate that the
//! agent serves while it has none.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    Attribute, CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, KeyPair,
    PKCS_ECDSA_P256_SHA256, PublicKeyData as _,
};
use virtfleet_runtime::tls::{AGENT_DNS_NAME, CertificateChain};
use virtfleet_wire::enrolment::Nonce;
use zeroize::{Zeroize as _, Zeroizing};

/// Attribute `challengePassword` (RFC 2985, 5.4.1).
const CHALLENGE_PASSWORD: &[u64] = &[1, 2, 840, 113_549, 1, 9, 7];
/// Characters of base64 in a line (RFC 7468, 2).
const PEM_LINE_CHARS: usize = 64;

/// Why the key cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error(transparent)]
    Library(#[from] rcgen::Error),
    #[error("it is not an ECDSA key of the curve P-256")]
    OtherAlgorithm,
}

/// The key. Its bytes are zeroed when it is dropped.
pub(super) struct AgentKey {
    pkcs8: Zeroizing<Vec<u8>>,
    public_key: Vec<u8>,
}

impl AgentKey {
    /// Makes a new key.
    pub(super) fn generate() -> Result<Self, KeyError> {
        let mut pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let key = Self {
            pkcs8: Zeroizing::new(pair.serialized_der().to_vec()),
            public_key: pair.subject_public_key_info(),
        };
        pair.zeroize();
        Ok(key)
    }

    /// Reads a stored key.
    pub(super) fn from_pkcs8(pkcs8: Zeroizing<Vec<u8>>) -> Result<Self, KeyError> {
        let mut pair = KeyPair::try_from(pkcs8.as_slice())?;
        let public_key = pair.subject_public_key_info();
        let is_p256 = pair.algorithm() == &PKCS_ECDSA_P256_SHA256;
        pair.zeroize();
        if is_p256 {
            Ok(Self { pkcs8, public_key })
        } else {
            Err(KeyError::OtherAlgorithm)
        }
    }

    /// PKCS #8 in DER.
    pub(super) fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// SubjectPublicKeyInfo in DER.
    pub(super) fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    /// A certificate without an identity, for the time without another one.
    pub(super) fn self_signed(&self) -> Result<CertificateChain, KeyError> {
        self.with_pair(|pair| {
            let mut params = CertificateParams::new([AGENT_DNS_NAME.to_owned()])?;
            params.distinguished_name = DistinguishedName::new();
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            Ok(CertificateChain::from_der(params.self_signed(pair)?.der()))
        })
    }

    /// A CSR (PKCS #10 in PEM) without any name, and with this nonce.
    pub(super) fn csr(&self, nonce: &Nonce) -> Result<String, KeyError> {
        self.with_pair(|pair| {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            let attribute = Attribute {
                oid: CHALLENGE_PASSWORD,
                values: set_of_printable_string(nonce.as_str()),
            };
            let request = params.serialize_request_with_attributes(pair, vec![attribute])?;
            Ok(pem("CERTIFICATE REQUEST", request.der()))
        })
    }

    fn with_pair<T>(&self, used: impl FnOnce(&KeyPair) -> Result<T, KeyError>) -> Result<T, KeyError> {
        let mut pair = KeyPair::try_from(self.pkcs8.as_slice())?;
        let result = used(&pair);
        pair.zeroize();
        result
    }
}

impl std::fmt::Debug for AgentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AgentKey")
    }
}

/// DER of `SET { PrintableString }`. A nonce is 64 characters, so each length takes one byte.
fn set_of_printable_string(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap_or_default();
    let mut der = vec![0x31, length.saturating_add(2), 0x13, length];
    der.extend_from_slice(text.as_bytes());
    der
}

/// PEM (RFC 7468).
fn pem(label: &str, der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, next) = rest.split_at(rest.len().min(PEM_LINE_CHARS));
        text.push_str(line);
        text.push('\n');
        rest = next;
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_key_is_the_same_key_and_other_kinds_are_refused() {
        let key = AgentKey::generate().unwrap();
        let stored = AgentKey::from_pkcs8(Zeroizing::new(key.pkcs8().to_vec())).unwrap();
        assert_eq!(stored.public_key(), key.public_key());
        assert_ne!(AgentKey::generate().unwrap().public_key(), key.public_key());
        let other = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        for unusable in [other.serialized_der().to_vec(), b"x".to_vec(), Vec::new()] {
            AgentKey::from_pkcs8(Zeroizing::new(unusable)).unwrap_err();
        }
    }

    #[test]
    fn pem_lines_have_64_characters() {
        let text = pem("X", &[0; 49]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!((lines[0], lines[3]), ("-----BEGIN X-----", "-----END X-----"));
        assert_eq!((lines[1].len(), lines[2].len()), (64, 4));
    }

    #[test]
    fn debug_output_has_no_secret() {
        assert_eq!(format!("{:?}", AgentKey::generate().unwrap()), "AgentKey");
    }
}
