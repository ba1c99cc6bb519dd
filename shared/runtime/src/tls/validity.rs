//! Validity period of certificates.

use std::time::Duration;

use rustls::pki_types::{CertificateDer, UnixTime, pem::PemObject as _};
use webpki::{EndEntityCert, Error, KeyUsage};

/// The validity period of a certificate, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First second.
    pub not_before: u64,
    /// Last second.
    pub not_after: u64,
}

impl Validity {
    /// Reads the first certificate of a PEM file (RFC 7468). Other blocks, such as private keys,
    /// are skipped.
    ///
    /// # Errors
    /// The file is not PEM, or holds no certificate, or one that cannot be parsed; as the end of a
    /// sentence.
    pub fn of_first(pem: &[u8]) -> Result<Self, String> {
        let first = CertificateDer::pem_slice_iter(pem).next();
        let certificate = first
            .ok_or("holds no certificate")?
            .map_err(|error| format!("is not PEM: {error}"))?;
        Self::of(&certificate).ok_or_else(|| "holds a certificate that cannot be parsed".to_owned())
    }

    /// Reads the period from a certificate; none if it cannot be parsed.
    ///
    /// webpki has no accessor for the two times, but reports them when it rejects a certificate as
    /// not yet valid or expired, and it checks them before the issuer. So this verifies the
    /// certificate in 1970 and in the year 9999.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let not_before = match refusal(&certificate, 0)? {
            Error::CertNotValidYet { not_before, .. } => not_before.as_secs(),
            // Already valid in 1970.
            _ => 0,
        };
        match refusal(&certificate, 253_402_300_799)? {
            Error::CertExpired { not_after, .. } => Some(Self {
                not_before,
                not_after: not_after.as_secs(),
            }),
            // RFC 5280, 4.1.2.5: 99991231235959Z means "does not expire".
            _ => Some(Self {
                not_before,
                not_after: 253_402_300_799,
            }),
        }
    }
}

/// Why `certificate` is not valid at a time, without any authority; so there is always a reason.
fn refusal(certificate: &EndEntityCert<'_>, seconds: u64) -> Option<Error> {
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    certificate
        .verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &[],
            &[],
            time,
            KeyUsage::server_auth(),
            None,
            None,
        )
        .err()
}
