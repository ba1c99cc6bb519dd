//! A server's certificate that is held in memory and replaced while the server runs.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use rustls::{
    RootCertStore,
    crypto::ring::sign::any_ecdsa_type,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use webpki::EndEntityCert;
use zeroize::Zeroize as _;

use super::{Validity, peer_names};

/// A certificate and its chain, without the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateChain(Vec<CertificateDer<'static>>);

/// Why a certificate, a key or an authority cannot be used. Displays as the end of a sentence.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("is not PEM: {0}")]
    NotPem(rustls::pki_types::pem::Error),
    #[error("contains no certificate")]
    Empty,
    /// A certificate that cannot be parsed, or is the certificate of an authority.
    #[error("contains a certificate that cannot be used: {0}")]
    Certificate(webpki::Error),
    #[error("cannot be used: {0}")]
    Rejected(rustls::Error),
}

impl CertificateChain {
    pub fn from_der(certificate: &[u8]) -> Self {
        Self(vec![CertificateDer::from(certificate.to_vec())])
    }

    /// Parses PEM text: the certificate, then its issuers.
    ///
    /// # Errors
    /// It is not PEM, contains no certificate, or one that cannot be parsed.
    pub fn from_pem(pem: &[u8]) -> Result<Self, IdentityError> {
        let chain = parse(pem)?;
        let first = chain.first().ok_or(IdentityError::Empty)?;
        EndEntityCert::try_from(first).map_err(IdentityError::Certificate)?;
        Ok(Self(chain))
    }

    /// The validity of the certificate itself; none if it cannot be parsed.
    pub fn validity(&self) -> Option<Validity> {
        Validity::of(self.0.first()?)
    }

    /// Names in the certificate itself: URIs, then DNS names.
    pub fn names(&self) -> Vec<String> {
        self.0.first().map(peer_names).unwrap_or_default()
    }

    pub(super) fn first(&self) -> Option<&CertificateDer<'static>> {
        self.0.first()
    }
}

fn parse(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(IdentityError::NotPem)
}

/// Authorities of clients, which came with an issued certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientAuthorities(Vec<CertificateDer<'static>>);

impl ClientAuthorities {
    /// Parses PEM text. Empty text contains none.
    ///
    /// # Errors
    /// It is not PEM, or contains a certificate that cannot be an authority.
    pub fn from_pem(pem: &[u8]) -> Result<Self, IdentityError> {
        let authorities = parse(pem)?;
        if authorities.is_empty() && !pem.trim_ascii().is_empty() {
            return Err(IdentityError::Empty);
        }
        let mut store = RootCertStore::empty();
        for authority in &authorities {
            store.add(authority.clone()).map_err(IdentityError::Rejected)?;
        }
        Ok(Self(authorities))
    }

    /// Adds them to `store`. They were accepted before.
    pub(super) fn add_to(&self, store: &mut RootCertStore) {
        store.add_parsable_certificates(self.0.iter().cloned());
    }
}

/// What a server presents: a certificate with its key, and the authorities that came with it.
#[derive(Debug, Clone)]
pub struct ServerIdentity {
    pub(super) certified: Arc<CertifiedKey>,
    pub(super) authorities: ClientAuthorities,
}

impl ServerIdentity {
    /// Combines a chain with its private key (ECDSA, PKCS #8 in DER).
    ///
    /// # Errors
    /// The key cannot be used, or is not that of the certificate.
    pub fn new(
        chain: CertificateChain,
        pkcs8: &[u8],
        authorities: ClientAuthorities,
    ) -> Result<Self, IdentityError> {
        let mut der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pkcs8.to_vec()));
        let key = any_ecdsa_type(&der);
        der.zeroize();
        let certified = CertifiedKey::new(chain.0, key.map_err(IdentityError::Rejected)?);
        certified.keys_match().map_err(IdentityError::Rejected)?;
        Ok(Self {
            certified: Arc::new(certified),
            authorities,
        })
    }
}

/// The identity that new connections of a server get. It can be replaced at any time.
#[derive(Debug)]
pub struct HeldIdentity {
    current: Mutex<ServerIdentity>,
    /// Increases with each replacement.
    revision: AtomicU64,
}

impl HeldIdentity {
    /// Holds a first identity.
    pub fn new(identity: ServerIdentity) -> Self {
        Self {
            current: Mutex::new(identity),
            revision: AtomicU64::new(0),
        }
    }

    /// Replaces the identity. Open connections keep the one with which they began.
    pub fn replace(&self, identity: ServerIdentity) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = identity;
        self.revision.fetch_add(1, Ordering::Release);
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    pub(super) fn current(&self) -> ServerIdentity {
        self.current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
