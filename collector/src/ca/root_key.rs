//! Private key of a root.

use std::{fmt, sync::Arc};

use rcgen::{PublicKeyData, SignatureAlgorithm, SigningKey};
use rustls::{
    SignatureScheme,
    pki_types::{PrivateKeyDer, pem::PemObject as _},
    sign::SigningKey as RustlsKey,
};
use x509_parser::{prelude::FromDer as _, x509::SubjectPublicKeyInfo};
use zeroize::{Zeroize as _, Zeroizing};

/// Algorithms of roots, with rcgen's name of each.
const ALGORITHMS: [(SignatureScheme, &SignatureAlgorithm); 4] = [
    (
        SignatureScheme::ECDSA_NISTP256_SHA256,
        &rcgen::PKCS_ECDSA_P256_SHA256,
    ),
    (
        SignatureScheme::ECDSA_NISTP384_SHA384,
        &rcgen::PKCS_ECDSA_P384_SHA384,
    ),
    (SignatureScheme::ED25519, &rcgen::PKCS_ED25519),
    (SignatureScheme::RSA_PKCS1_SHA256, &rcgen::PKCS_RSA_SHA256),
];

/// Private key of a root. It signs through rustls, because rcgen reads only PKCS #8, while
/// cert-manager writes PKCS #1 and SEC 1 by default.
#[derive(Clone)]
pub(super) struct RootKey {
    /// Zeroed when the last clone is dropped. What `ring` keeps of the key is not.
    text: Arc<Zeroizing<String>>,
    key: Arc<dyn RustlsKey>,
    scheme: SignatureScheme,
    algorithm: &'static SignatureAlgorithm,
    /// SubjectPublicKeyInfo in DER.
    public_key_info: Vec<u8>,
    /// Its bits, without the algorithm.
    public_key: Vec<u8>,
}

impl fmt::Debug for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RootKey")
            .field("scheme", &self.scheme)
            .finish_non_exhaustive()
    }
}

impl RootKey {
    /// Parses a PEM block.
    ///
    /// # Errors
    /// Why it cannot be used, as a sentence.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut der = PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|_| "not a private key in PEM; encrypted keys are not supported".to_owned())?;
        let key = rustls::crypto::ring::sign::any_supported_type(&der);
        der.zeroize();
        let key = key.map_err(|error| format!("the private key cannot be used: {error}"))?;
        let unsupported = || "use a key for ECDSA P-256 or P-384, Ed25519 or RSA".to_owned();
        let (scheme, algorithm) = ALGORITHMS
            .into_iter()
            .find(|(scheme, _)| key.choose_scheme(&[*scheme]).is_some())
            .ok_or_else(unsupported)?;
        let public_key_info = key.public_key().ok_or_else(unsupported)?.as_ref().to_vec();
        let (_, parsed) = SubjectPublicKeyInfo::from_der(&public_key_info).map_err(|_| unsupported())?;
        let public_key = parsed.subject_public_key.data.to_vec();
        Ok(Self {
            text: Arc::new(Zeroizing::new(text.to_owned())),
            key,
            scheme,
            algorithm,
            public_key_info,
            public_key,
        })
    }

    /// The PEM block. Secret.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// SubjectPublicKeyInfo in DER.
    pub(super) fn public_key_info(&self) -> &[u8] {
        &self.public_key_info
    }
}

impl PublicKeyData for RootKey {
    fn der_bytes(&self) -> &[u8] {
        &self.public_key
    }
    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

impl SigningKey for RootKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signer = self
            .key
            .choose_scheme(&[self.scheme])
            .ok_or(rcgen::Error::RemoteKeyError)?;
        signer.sign(message).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_zeroed_when_dropped_and_hidden_in_logs() {
        let text = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let key = RootKey::parse(&text).unwrap();
        let RootKey { text: kept, .. } = &key;
        let zeroed: &Zeroizing<String> = kept;
        assert_eq!(zeroed.as_str(), text);
        let shown = format!("{key:?}");
        assert!(shown.starts_with("RootKey { scheme: "), "{shown}");
        let secret = text.lines().nth(1).unwrap();
        assert!(!shown.contains(secret) && !shown.contains("PRIVATE"), "{shown}");
    }
}
