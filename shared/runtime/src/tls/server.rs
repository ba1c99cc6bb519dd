//! TLS of the server: its certificate, and authorized clients.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use rustls::{ServerConfig, pki_types::CertificateDer, server::WebPkiClientVerifier, version::TLS13};

use super::{
    TlsError, VmIdentity,
    files::{authorities, certificates, private_key},
    peer_names, provider,
    reload::{Reloading, Source},
};

/// Files of the server's TLS, and authorized clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsPaths {
    /// Certificate and chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities of clients; none allows every client, without client certificates.
    pub client_ca: Option<PathBuf>,
    /// Names, one of which a client must have; empty allows every client except agents.
    pub clients: Vec<String>,
}

/// Files of the server's TLS, and whether a client may omit its certificate.
#[derive(Debug)]
struct ServerTlsSource {
    paths: ServerTlsPaths,
    /// Clients without a certificate are accepted, because the service authenticates them.
    anonymous: bool,
}

impl Source for ServerTlsSource {
    type Config = ServerConfig;

    fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let paths = &self.paths;
        let verifier = match &paths.client_ca {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(path) => {
                let builder =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(path)?), provider());
                let builder = if self.anonymous {
                    builder.allow_unauthenticated()
                } else {
                    builder
                };
                builder.build().map_err(|source| TlsError::Authorities {
                    path: path.clone(),
                    source,
                })?
            }
        };
        let refused = |source| TlsError::Refused {
            path: paths.certificate.clone(),
            source,
        };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(refused)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates(&paths.certificate)?, private_key(&paths.key)?)
            .map_err(refused)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // No session tickets: a ticket would outlive a rotation of the authorities, so every peer
        // shows its certificate each time.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    fn files(&self) -> [&Path; 3] {
        let paths = &self.paths;
        [
            &paths.certificate,
            &paths.key,
            paths.client_ca.as_deref().unwrap_or(&paths.certificate),
        ]
    }
}

/// Server configuration, reloaded when its files change, and the authorization of clients.
#[derive(Debug)]
pub struct TlsAcceptor(Reloading<ServerTlsSource>);

impl TlsAcceptor {
    /// Reads the files.
    ///
    /// # Errors
    /// The file that cannot be used.
    pub fn new(paths: ServerTlsPaths) -> Result<Self, TlsError> {
        let anonymous = false;
        Reloading::new(ServerTlsSource { paths, anonymous }).map(Self)
    }

    /// As [`TlsAcceptor::new`], but a client may omit its certificate: the service authenticates it
    /// in another way. A certificate that a client presents is still verified.
    ///
    /// # Errors
    /// The file that cannot be used.
    pub fn with_optional_certificates(paths: ServerTlsPaths) -> Result<Self, TlsError> {
        let anonymous = true;
        Reloading::new(ServerTlsSource { paths, anonymous }).map(Self)
    }

    /// The configuration for a new connection at `now`; changed files are reloaded, and if they
    /// cannot be used the last valid configuration is kept.
    pub fn config(&self, now: Instant) -> Arc<ServerConfig> {
        self.0.current(now)
    }

    /// Authorizes the client with this certificate; returns the name that is authorized.
    ///
    /// # Errors
    /// Why the client is not authorized.
    pub fn authorise(&self, chain: Option<&[CertificateDer<'_>]>) -> Result<String, String> {
        let ServerTlsSource { paths, anonymous } = &self.0.source;
        if paths.client_ca.is_none() {
            return Ok("not asked".to_owned());
        }
        match chain.and_then(<[_]>::first) {
            Some(certificate) => authorise(&paths.clients, &peer_names(certificate)),
            None if *anonymous => Ok("without certificate".to_owned()),
            None => Err("no client certificate".to_owned()),
        }
    }
}

/// An empty list allows every verified client except agents: they share the authority, but must not
/// read each other.
fn authorise(allowed: &[String], names: &[String]) -> Result<String, String> {
    if allowed.is_empty() {
        return match names.iter().find(|name| VmIdentity::from_uri(name).is_some()) {
            Some(agent) => Err(format!(
                "{agent} is an agent, and agents must not read each other"
            )),
            None => Ok(names.first().cloned().unwrap_or_else(|| "unnamed".to_owned())),
        };
    }
    let found = names.iter().find(|name| allowed.contains(name)).cloned();
    found.ok_or_else(|| format!("none of {names:?} is in server.tls.clients"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_rejected_unless_listed() {
        let list = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        let agent = list(&["spiffe://d/vmi/a/b/c", "agent.virtfleet.internal"]);
        let prometheus = list(&["prometheus.monitoring.svc"]);
        authorise(&[], &agent).unwrap_err();
        assert_eq!(authorise(&[], &prometheus).unwrap(), "prometheus.monitoring.svc");
        authorise(&[], &[]).unwrap();
        authorise(&list(&["spiffe://d/collector"]), &prometheus).unwrap_err();
        authorise(&list(&["spiffe://d/vmi/a/b/c"]), &agent).unwrap();
    }
}
