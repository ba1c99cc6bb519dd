//! Reads certificates that the program itself got.

use std::{fmt, sync::Arc};

use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};

use zeroize::Zeroizing;

use super::{client_keys::ClientParts, files::authorities_of, provider};

/// Certificates that the program itself got, in PEM. The key is secret.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedTls {
    /// Authorities of servers.
    pub authorities: String,
    /// The client's certificate and chain.
    pub certificate: String,
    /// Its private key. Zeroed when dropped.
    pub key: Zeroizing<String>,
}

impl fmt::Debug for IssuedTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedTls")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// Why certificates in memory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IssuedTlsError {
    /// Text that is not PEM.
    #[error("the {what} cannot be read")]
    Read {
        what: &'static str,
        source: rustls::pki_types::pem::Error,
    },
    /// Text without the expected content.
    #[error("there is no {0}")]
    Empty(&'static str),
    /// rustls rejects them, or they do not match.
    #[error("the certificate cannot be used")]
    Refused(#[from] rustls::Error),
}

pub(super) fn read_issued(issued: &IssuedTls) -> Result<ClientParts, IssuedTlsError> {
    let authorities = certificates("authorities", &issued.authorities)?;
    authorities_of(&authorities)?;
    let chain = certificates("certificate", &issued.certificate)?;
    let key =
        PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).map_err(|source| IssuedTlsError::Read {
            what: "private key",
            source,
        })?;
    Ok(ClientParts {
        authorities,
        key: Arc::new(CertifiedKey::from_der(chain, key, &provider())?),
    })
}

fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, IssuedTlsError> {
    let found = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| IssuedTlsError::Read { what, source })?;
    if found.is_empty() {
        return Err(IssuedTlsError::Empty(what));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_hidden_in_logs() {
        let issued = IssuedTls {
            authorities: "a".to_owned(),
            certificate: "c".to_owned(),
            key: Zeroizing::new("secret".to_owned()),
        };
        assert_eq!(format!("{issued:?}"), "IssuedTls { certificate: \"c\", .. }");
    }
}
