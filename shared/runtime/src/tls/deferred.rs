//! A client's handshake that ends before the server's certificate is judged: for servers that may
//! have no certificate of a known authority yet.

use std::{sync::Arc, time::Duration};

use rustls::{
    CertificateError, ClientConfig, Error,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::{AGENT_DNS_NAME, AnyCertificate, PUSH_PROTOCOL};

/// The configuration of a connection to an agent. The handshake proves that the agent has the key
/// of its certificate, whoever signed that. Call [`DeferredTls::check`] before data of the agent is
/// used.
#[derive(Debug)]
pub struct DeferredTls {
    config: Arc<ClientConfig>,
    verifier: Arc<WebPkiServerVerifier>,
}

impl DeferredTls {
    /// `config` without its `verifier`, which [`DeferredTls::check`] uses.
    pub(super) fn new(config: &ClientConfig, verifier: Arc<WebPkiServerVerifier>) -> Self {
        let mut config = config.clone();
        config
            .dangerous()
            .set_certificate_verifier(Arc::new(AnyCertificate::default()));
        Self {
            config: Arc::new(config),
            verifier,
        }
    }

    /// The same for a connection that the agent opened: only [`PUSH_PROTOCOL`] is spoken.
    #[must_use]
    pub fn for_push(self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![PUSH_PROTOCOL.to_vec()];
        Self {
            config: Arc::new(config),
            ..self
        }
    }

    /// The configuration of the connection.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// Checks the chain that the server has presented, its own certificate first, at a time in
    /// seconds since 1970.
    ///
    /// # Errors
    /// The certificate is not signed by a known authority, not of an agent, or not valid now.
    pub fn check(&self, chain: &[CertificateDer<'_>], now: u64) -> Result<(), Error> {
        let (certificate, intermediates) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        let name = ServerName::try_from(AGENT_DNS_NAME)
            .map_err(|_| Error::InvalidCertificate(CertificateError::NotValidForName))?;
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        self.verifier
            .verify_server_cert(certificate, intermediates, &name, &[], now)
            .map(drop)
    }
}
