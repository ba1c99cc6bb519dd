//! TLS of the client: trusted authorities, and the own certificate.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use rustls::{ClientConfig, client::Resumption, version::TLS13};

use super::{
    TlsError,
    files::{authorities, certificates, private_key},
    provider,
    reload::{Reloading, Source},
};

/// Files of the client's TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTlsPaths {
    /// Authorities of servers.
    pub ca: PathBuf,
    /// The client's certificate and chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Source for ClientTlsPaths {
    type Config = ClientConfig;

    fn load(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let refused = |source| TlsError::Refused {
            path: self.certificate.clone(),
            source,
        };
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(refused)?
            .with_root_certificates(authorities(&self.ca)?)
            .with_client_auth_cert(certificates(&self.certificate)?, private_key(&self.key)?)
            .map_err(refused)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    fn files(&self) -> [&Path; 3] {
        [&self.ca, &self.certificate, &self.key]
    }
}

/// Client configuration, reloaded when its files change.
#[derive(Debug)]
pub struct ClientTls(Reloading<ClientTlsPaths>);

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// The file that cannot be used.
    pub fn new(paths: ClientTlsPaths) -> Result<Self, TlsError> {
        Reloading::new(paths).map(Self)
    }

    /// The configuration for a new connection at `now`; reloads like
    /// [`super::TlsAcceptor::config`].
    pub fn config(&self, now: Instant) -> Arc<ClientConfig> {
        self.0.current(now)
    }
}
