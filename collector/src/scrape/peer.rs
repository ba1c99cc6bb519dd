//! What a peer's certificate says.

use std::fmt;

use rustls::pki_types::CertificateDer;
use virtfleet_collector_core::{
    dial::DialTarget,
    enrolment::{CertificateLife, KeyFingerprint},
};
use virtfleet_runtime::{digest::Sha256, tls::peer_names};

use super::transport::OpenError;
use crate::ca::Serial;

/// A peer's certificate, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerCertificate {
    /// URIs, then DNS names.
    pub(crate) names: Vec<String>,
    /// Its serial number; none if it is longer than RFC 5280 allows.
    pub(crate) serial: Option<Serial>,
    /// Fingerprint of its key. In TLS 1.3 the handshake proves that the peer has this key.
    pub(crate) key: KeyFingerprint,
    pub(crate) life: CertificateLife,
}

impl PeerCertificate {
    /// None if it cannot be parsed.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let mut digest = Sha256::default();
        digest.update(parsed.public_key().raw);
        let seconds = |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0);
        Some(Self {
            names: peer_names(certificate),
            serial: Serial::of(certificate),
            key: digest.hex().parse().ok()?,
            life: CertificateLife {
                not_before: seconds(parsed.validity().not_before),
                not_after: seconds(parsed.validity().not_after),
            },
        })
    }
}

/// Decides whether a verified certificate is used, e.g. because it was revoked.
pub(crate) trait PeerPolicy: fmt::Debug + Send + Sync {
    /// Checks the certificate with which `target` answers.
    ///
    /// # Errors
    /// Why it is not used.
    fn check(&self, target: &DialTarget, peer: &PeerCertificate) -> Result<(), OpenError>;
}
