//! Verification of certificate chains.

use std::time::Duration;

use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime, pem::PemObject as _};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, Error, KeyUsage, anchor_from_trusted_cert};

/// Purpose of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    Client,
    Server,
}

/// Checks that the first certificate of `chain` is issued by one of `authorities`, through the
/// others of `chain`, at a time in seconds since 1970. Both are PEM text.
///
/// # Errors
/// The problem, as the end of a sentence.
pub fn check_chain(chain: &[u8], authorities: &[u8], usage: Usage, seconds: u64) -> Result<(), String> {
    let read = |pem: &[u8]| {
        CertificateDer::pem_slice_iter(pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("is not PEM: {error}"))
    };
    let (chain, authorities) = (read(chain)?, read(authorities)?);
    let (first, others) = chain.split_first().ok_or("contains no certificate")?;
    let anchors: Vec<TrustAnchor<'_>> = authorities
        .iter()
        .filter_map(|one| anchor_from_trusted_cert(one).ok())
        .collect();
    let certificate = EndEntityCert::try_from(first).map_err(|error| format!("cannot be parsed: {error}"))?;
    let (usage, purpose) = match usage {
        Usage::Client => (KeyUsage::client_auth(), "client"),
        Usage::Server => (KeyUsage::server_auth(), "server"),
    };
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    certificate
        .verify_for_usage(ALL_VERIFICATION_ALGS, &anchors, others, time, usage, None, None)
        .map(drop)
        .map_err(|error| match error {
            // Another authority of the same name.
            Error::UnknownIssuer | Error::InvalidSignatureForPublicKey => {
                "is not signed by any of these authorities".to_owned()
            }
            Error::CertExpired { .. } => "or one of its issuers has expired".to_owned(),
            Error::CertNotValidYet { .. } => "or one of its issuers is not valid yet".to_owned(),
            Error::RequiredEkuNotFoundContext(_) => {
                format!("is not valid for a {purpose} (extended key usage)")
            }
            error => format!("cannot be verified: {error}"),
        })
}
