//! Chooses one of several client certificates.

use std::sync::Arc;

use rustls::{
    DistinguishedName, SignatureScheme, client::ResolvesClientCert, pki_types::CertificateDer,
    sign::CertifiedKey,
};
use webpki::EndEntityCert;

/// Authorities and the own certificate from one place.
#[derive(Debug)]
pub(super) struct ClientParts {
    /// Authorities of servers.
    pub(super) authorities: Vec<CertificateDer<'static>>,
    /// The client's certificate, chain and key.
    pub(super) key: Arc<CertifiedKey>,
}

/// Client certificates with their keys, in order of preference.
#[derive(Debug)]
pub(super) struct ClientKeys(Vec<ClientKey>);

#[derive(Debug)]
struct ClientKey {
    key: Arc<CertifiedKey>,
    /// Issuers of the certificates in the chain.
    issuers: Vec<DistinguishedName>,
}

impl ClientKeys {
    pub(super) fn new(keys: Vec<Arc<CertifiedKey>>) -> Self {
        let with_issuers = keys.into_iter().map(|key| ClientKey {
            issuers: key.cert.iter().filter_map(issuer).collect(),
            key,
        });
        Self(with_issuers.collect())
    }
}

fn issuer(certificate: &CertificateDer<'_>) -> Option<DistinguishedName> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    Some(DistinguishedName::in_sequence(parsed.issuer()))
}

impl ResolvesClientCert for ClientKeys {
    /// The first certificate under an authority that the server names (RFC 8446, 4.2.4), else the
    /// first one: with a wrong certificate the server logs a better reason than without any.
    fn resolve(&self, named: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let is_named = |issuer: &DistinguishedName| named.contains(&issuer.as_ref());
        let mut usable = self
            .0
            .iter()
            .filter(|known| known.key.key.choose_scheme(schemes).is_some());
        let first = usable.clone().next();
        let found = usable.find(|known| known.issuers.iter().any(is_named)).or(first);
        found.map(|known| Arc::clone(&known.key))
    }

    fn has_certs(&self) -> bool {
        !self.0.is_empty()
    }
}
