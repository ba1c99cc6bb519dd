//! TLS of the server: its certificate, and authorized clients.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use rustls::{
    RootCertStore, ServerConfig,
    pki_types::CertificateDer,
    server::WebPkiClientVerifier,
    sign::{CertifiedKey, SingleCertAndKey},
    version::TLS13,
};

use super::{
    ClientRule, HTTP_PROTOCOL, HeldIdentity, PUSH_PROTOCOL, TlsError,
    files::{authorities, certificates, private_key},
    peer_names, provider,
    reload::{Reloading, Source},
};

/// Files of the server's TLS, and authorized clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsPaths {
    /// Certificate and chain.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authorities of clients; none allows every client, without client certificates.
    pub client_ca: Option<PathBuf>,
    pub clients: ClientRule,
}

/// A certificate in memory, a file with authorities of clients, and authorized clients.
#[derive(Debug, Clone)]
pub struct HeldTls {
    /// The certificate and its key, and authorities of clients beside those of the file.
    pub identity: Arc<HeldIdentity>,
    /// Authorities of clients.
    pub client_ca: PathBuf,
    pub clients: ClientRule,
}

/// Where the configuration comes from.
#[derive(Debug)]
enum ServerSource {
    Files {
        paths: ServerTlsPaths,
        /// Clients without a certificate are accepted, because the service authenticates them.
        anonymous: bool,
    },
    Held {
        tls: HeldTls,
        /// Authorities of the file as last read: an identity is used at once, even if the file
        /// cannot be read at that time.
        authorities: Mutex<Option<RootCertStore>>,
    },
    /// A certificate in memory; the service authenticates clients.
    Issued(Arc<HeldIdentity>),
}

impl Source for ServerSource {
    type Config = ServerConfig;

    fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        match self {
            Self::Files { paths, anonymous } => {
                let refused = |source| TlsError::Refused {
                    path: paths.certificate.clone(),
                    source,
                };
                let key = private_key(&paths.key)?;
                let chain = certificates(&paths.certificate)?;
                let certified = CertifiedKey::from_der(chain, key, &provider()).map_err(refused)?;
                let clients = match &paths.client_ca {
                    Some(path) => Some(ClientRoots {
                        path,
                        roots: authorities(path)?,
                        anonymous: *anonymous,
                    }),
                    None => None,
                };
                config(&paths.certificate, certified, clients)
            }
            Self::Held {
                tls,
                authorities: known,
            } => {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                let mut roots = match (authorities(&tls.client_ca), known.as_ref()) {
                    (Ok(read), _) => known.insert(read).clone(),
                    (Err(error), Some(last)) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(error, "the authorities of clients as last read are kept");
                        last.clone()
                    }
                    (Err(error), None) => return Err(error),
                };
                let identity = tls.identity.current();
                identity.authorities.add_to(&mut roots);
                let certified = CertifiedKey::clone(&identity.certified);
                let clients = ClientRoots {
                    path: &tls.client_ca,
                    roots,
                    anonymous: false,
                };
                config(&tls.client_ca, certified, Some(clients))
            }
            Self::Issued(identity) => {
                let certified = CertifiedKey::clone(&identity.current().certified);
                config(Path::new("the issued certificate"), certified, None)
            }
        }
    }

    fn files(&self) -> [&Path; 3] {
        match self {
            Self::Files { paths, .. } => [
                &paths.certificate,
                &paths.key,
                paths.client_ca.as_deref().unwrap_or(&paths.certificate),
            ],
            Self::Held { tls, .. } => [&tls.client_ca; 3].map(PathBuf::as_path),
            Self::Issued(_) => [Path::new(""); 3],
        }
    }

    fn revision(&self) -> u64 {
        match self {
            Self::Files { .. } => 0,
            Self::Held { tls, .. } => tls.identity.revision(),
            Self::Issued(identity) => identity.revision(),
        }
    }
}

/// Authorities of clients.
struct ClientRoots<'a> {
    /// The file of the authorities, for errors.
    path: &'a Path,
    roots: RootCertStore,
    /// Clients without a certificate are accepted, too.
    anonymous: bool,
}

/// TLS 1.3 with this certificate, for clients of these authorities, or for all. Errors name `path`.
fn config(
    path: &Path,
    certified: CertifiedKey,
    clients: Option<ClientRoots<'_>>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier = match clients {
        None => WebPkiClientVerifier::no_client_auth(),
        Some(clients) => {
            let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(clients.roots), provider());
            let builder = if clients.anonymous {
                builder.allow_unauthenticated()
            } else {
                builder
            };
            builder.build().map_err(|source| TlsError::Authorities {
                path: clients.path.to_owned(),
                source,
            })?
        }
    };
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|source| TlsError::Refused {
            path: path.to_owned(),
            source,
        })?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![HTTP_PROTOCOL.to_vec()];
    // No session tickets: a ticket would outlive a rotation of the authorities, so every peer
    // shows its certificate each time.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Server configuration, reloaded when its files or its identity change, and the authorization of
/// clients.
#[derive(Debug)]
pub struct TlsAcceptor {
    config: Reloading<ServerSource>,
    /// None if the server asks for no client certificate.
    clients: Option<ClientRule>,
    /// Clients without a certificate are accepted.
    anonymous: bool,
    /// The connections were opened by this side.
    is_for_push: bool,
}

impl TlsAcceptor {
    /// Reads the files.
    ///
    /// # Errors
    /// The file that cannot be used.
    pub fn new(paths: ServerTlsPaths) -> Result<Self, TlsError> {
        Self::of_files(paths, false)
    }

    /// As [`TlsAcceptor::new`], but a client may omit its certificate: the service authenticates it
    /// in another way. A certificate that a client presents is still verified.
    ///
    /// # Errors
    /// The file that cannot be used.
    pub fn with_optional_certificates(paths: ServerTlsPaths) -> Result<Self, TlsError> {
        Self::of_files(paths, true)
    }

    fn of_files(paths: ServerTlsPaths, anonymous: bool) -> Result<Self, TlsError> {
        let clients = paths.client_ca.is_some().then(|| paths.clients.clone());
        let config = Reloading::new(ServerSource::Files { paths, anonymous })?;
        Ok(Self {
            config,
            clients,
            anonymous,
            is_for_push: false,
        })
    }

    /// Serves with an identity that is held in memory. Each new connection gets the current one.
    ///
    /// # Errors
    /// The authorities of clients cannot be used.
    pub fn held(tls: HeldTls) -> Result<Self, TlsError> {
        let clients = Some(tls.clients.clone());
        let config = Reloading::new(ServerSource::Held {
            tls,
            authorities: Mutex::new(None),
        })?;
        Ok(Self {
            config,
            clients,
            anonymous: false,
            is_for_push: false,
        })
    }

    /// Serves with an identity that is held in memory, and asks for no client certificate: the
    /// service authenticates clients in another way.
    ///
    /// # Errors
    /// The identity cannot be used.
    pub fn issued(identity: Arc<HeldIdentity>) -> Result<Self, TlsError> {
        Ok(Self {
            config: Reloading::new(ServerSource::Issued(identity))?,
            clients: None,
            anonymous: false,
            is_for_push: false,
        })
    }

    /// The same for connections that this side opened: only [`PUSH_PROTOCOL`] is spoken.
    #[must_use]
    pub fn for_push(self) -> Self {
        Self {
            is_for_push: true,
            ..self
        }
    }

    /// The configuration for a new connection at `now`; changed files are reloaded, and if they
    /// cannot be used the last valid configuration is kept.
    pub fn config(&self, now: Instant) -> Arc<ServerConfig> {
        let config = self.config.current(now);
        if !self.is_for_push {
            return config;
        }
        let mut config = ServerConfig::clone(&config);
        config.alpn_protocols = vec![PUSH_PROTOCOL.to_vec()];
        Arc::new(config)
    }

    /// Authorizes the client with this certificate; returns the name that is authorized.
    ///
    /// # Errors
    /// Why the client is not authorized.
    pub fn authorise(&self, chain: Option<&[CertificateDer<'_>]>) -> Result<String, String> {
        let Some(rule) = &self.clients else {
            return Ok("not asked".to_owned());
        };
        match chain.and_then(<[_]>::first) {
            Some(certificate) => rule.authorise(&peer_names(certificate)),
            None if self.anonymous => Ok("without certificate".to_owned()),
            None => Err("no client certificate".to_owned()),
        }
    }
}
