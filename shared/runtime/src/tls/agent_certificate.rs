//! Verification of a certificate that an agent receives for its own key.

use std::time::Duration;

use rustls::pki_types::UnixTime;
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage};

use super::{AGENT_DNS_NAME, CertificateChain, Validity, peer_names};

/// Key purpose `serverAuth` (RFC 5280, 4.2.1.12), without tag and length.
const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];

/// Why an issued certificate does not fit. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfitCertificate {
    #[error("the certificate cannot be parsed")]
    Unparsable,
    #[error("the certificate is for another key than the agent's")]
    OtherKey,
    /// Its URIs are not exactly the requested identity.
    #[error("the certificate has the identity {found:?}, but {expected} was requested")]
    OtherIdentity {
        /// The URIs that it has.
        found: Vec<String>,
        expected: String,
    },
    #[error("the certificate has no DNS name {AGENT_DNS_NAME}")]
    NoDnsName,
    #[error("the certificate is not valid for a server (extended key usage)")]
    NotForServers,
}

/// Checks that the first certificate of `chain` is for this public key (SubjectPublicKeyInfo, DER)
/// and this identity, and for servers. Its signature and its dates are not checked: only the
/// collector knows the authority, and verifies both at each connection.
///
/// # Errors
/// Why it does not fit.
pub fn check_issued(
    chain: &CertificateChain,
    public_key: &[u8],
    identity: &str,
) -> Result<Validity, UnfitCertificate> {
    let first = chain.first().ok_or(UnfitCertificate::Unparsable)?;
    let certificate = EndEntityCert::try_from(first).map_err(|_| UnfitCertificate::Unparsable)?;
    let validity = Validity::of(first).ok_or(UnfitCertificate::Unparsable)?;
    if certificate.subject_public_key_info().as_ref() != public_key {
        return Err(UnfitCertificate::OtherKey);
    }
    let (uris, others): (Vec<String>, Vec<String>) = peer_names(first)
        .into_iter()
        .partition(|name| name.contains("://"));
    if uris != [identity] {
        return Err(UnfitCertificate::OtherIdentity {
            found: uris,
            expected: identity.to_owned(),
        });
    }
    if !others.iter().any(|name| name == AGENT_DNS_NAME) {
        return Err(UnfitCertificate::NoDnsName);
    }
    // Without authorities there is always an error; the usage is checked before the issuer.
    let time = UnixTime::since_unix_epoch(Duration::from_secs(validity.not_before));
    let usage = KeyUsage::required(SERVER_AUTH);
    match certificate.verify_for_usage(ALL_VERIFICATION_ALGS, &[], &[], time, usage, None, None) {
        Ok(_) | Err(webpki::Error::UnknownIssuer) => Ok(validity),
        Err(_) => Err(UnfitCertificate::NotForServers),
    }
}
