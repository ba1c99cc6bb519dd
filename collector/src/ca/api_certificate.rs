//! The certificate of the collector's API, if the settings name none. It is issued in memory, as
//! the collector's own, by the root of clients: that root's certificate is public, and chains lead
//! to it from older ones.

use std::sync::Arc;

use anyhow::Context as _;
use rcgen::KeyPair;
use virtfleet_runtime::tls::{CertificateChain, ClientAuthorities, HeldIdentity, ServerIdentity};
use zeroize::Zeroizing;

use super::{Authorities, CaError, UnixSeconds, issue::with_new_key, metrics::OwnLife};

/// A certificate that the API's server presents, and that can be replaced while it runs.
#[derive(Debug)]
pub(super) struct ApiCertificate {
    identity: Arc<HeldIdentity>,
    names: Vec<String>,
    /// Life of the first certificate.
    first: OwnLife,
}

impl ApiCertificate {
    /// Issues the first certificate, for `lifetime` seconds.
    ///
    /// # Errors
    /// The root cannot sign now, or a name cannot be written.
    pub(super) fn new(
        names: Vec<String>,
        authorities: &Authorities,
        trust_domain: &str,
        lifetime: u64,
        now: UnixSeconds,
    ) -> anyhow::Result<Self> {
        let (identity, first) = identity(authorities, trust_domain, &names, lifetime, now)?;
        Ok(Self {
            identity: Arc::new(HeldIdentity::new(identity)),
            names,
            first,
        })
    }

    /// Life of the first certificate.
    pub(super) fn first(&self) -> OwnLife {
        self.first
    }

    /// What the server presents.
    pub(super) fn identity(&self) -> Arc<HeldIdentity> {
        Arc::clone(&self.identity)
    }

    /// Issues another certificate, and returns its life. Open connections keep the previous one.
    ///
    /// # Errors
    /// The root cannot sign now. The previous certificate stays.
    pub(super) fn renew(
        &self,
        authorities: &Authorities,
        trust_domain: &str,
        lifetime: u64,
        now: UnixSeconds,
    ) -> anyhow::Result<OwnLife> {
        let (identity, life) = identity(authorities, trust_domain, &self.names, lifetime, now)?;
        self.identity.replace(identity);
        Ok(life)
    }
}

fn identity(
    authorities: &Authorities,
    trust_domain: &str,
    names: &[String],
    lifetime: u64,
    now: UnixSeconds,
) -> anyhow::Result<(ServerIdentity, OwnLife)> {
    const WHAT: &str = "the certificate of the API";
    let (chain, key) = issue(authorities, trust_domain, names, lifetime, now)?;
    let chain = CertificateChain::from_pem(chain.as_bytes()).context(WHAT)?;
    let life = OwnLife {
        issued: now,
        not_after: chain.validity().context(WHAT)?.not_after,
    };
    let identity = ServerIdentity::new(chain, &key, ClientAuthorities::default());
    Ok((identity.context(WHAT)?, life))
}

/// Issues a certificate for these DNS names; returns it with its chain in PEM, and its key in
/// PKCS #8.
///
/// # Errors
/// The root cannot sign now, or a name cannot be written.
pub(super) fn issue(
    authorities: &Authorities,
    trust_domain: &str,
    names: &[String],
    lifetime: u64,
    now: UnixSeconds,
) -> Result<(String, Zeroizing<Vec<u8>>), CaError> {
    let uri = format!("spiffe://{trust_domain}/api");
    let (signed, key) = with_new_key(lifetime, now, KeyPair::serialize_der, |key, validity| {
        authorities.sign_api(key, &uri, names, validity)
    })?;
    Ok((signed.chain_pem, key))
}
