//! TLS of the client: trusted authorities, and the own certificates. They come from files, which
//! are reloaded when they change, and from memory, where the program replaces them.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use rustls::{
    ClientConfig, RootCertStore,
    client::{Resumption, WebPkiServerVerifier},
    pki_types::CertificateDer,
    sign::CertifiedKey,
    version::TLS13,
};

use super::{
    DeferredTls, HTTP_PROTOCOL, TlsError,
    client_keys::{ClientKeys, ClientParts},
    files::{authorities_of, certificates, private_key},
    issued::{IssuedTls, IssuedTlsError, read_issued},
    provider,
    reload::{Reloading, Source},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTlsPaths {
    /// Authorities of servers.
    pub ca: PathBuf,
    /// The client's certificate and chain.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Source for ClientTlsPaths {
    type Config = ClientParts;

    fn load(&self) -> Result<Arc<ClientParts>, TlsError> {
        let refused = |path: &Path, source| TlsError::Refused {
            path: path.to_owned(),
            source,
        };
        let authorities = certificates(&self.ca)?;
        authorities_of(&authorities).map_err(|source| refused(&self.ca, source))?;
        let chain = certificates(&self.certificate)?;
        let key = CertifiedKey::from_der(chain, private_key(&self.key)?, &provider())
            .map_err(|source| refused(&self.certificate, source))?;
        Ok(Arc::new(ClientParts {
            authorities,
            key: Arc::new(key),
        }))
    }

    fn files(&self) -> [&Path; 3] {
        [&self.ca, &self.certificate, &self.key]
    }
}

/// Client configuration from files, from memory, or from both: then servers of either authority are
/// trusted, and each gets the certificate of the authority that it names.
#[derive(Debug, Default)]
pub struct ClientTls {
    files: Option<Reloading<ClientTlsPaths>>,
    issued: Mutex<Option<Arc<ClientParts>>>,
    built: Mutex<Option<BuiltConfig>>,
}

/// Changes when an authority of servers is no longer trusted: connections that were verified before
/// must be verified again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AuthoritiesId(u64);

/// A configuration, and the parts that it was built from.
#[derive(Debug, Clone)]
struct BuiltConfig {
    parts: Vec<Arc<ClientParts>>,
    config: Arc<ClientConfig>,
    verifier: Arc<WebPkiServerVerifier>,
    authorities: AuthoritiesId,
}

impl BuiltConfig {
    fn certificates(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.parts.iter().flat_map(|part| &part.authorities)
    }

    /// The same, as the successor of an earlier one.
    fn after(mut self, earlier: &Self) -> Self {
        let is_kept = |old: &CertificateDer<'_>| self.certificates().any(|new| new == old);
        let is_less = !earlier.certificates().all(is_kept);
        self.authorities = AuthoritiesId(earlier.authorities.0 + u64::from(is_less));
        self
    }
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// The file that cannot be used.
    pub fn new(paths: ClientTlsPaths) -> Result<Self, TlsError> {
        Ok(Self {
            files: Some(Reloading::new(paths)?),
            ..Self::default()
        })
    }

    /// A client without a certificate until [`ClientTls::replace`].
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// Replaces the authorities and the certificate in memory; new connections use them. Those from
    /// files stay.
    ///
    /// # Errors
    /// Why the new ones cannot be used; the previous ones stay.
    pub fn replace(&self, issued: &IssuedTls) -> Result<(), IssuedTlsError> {
        let parts = read_issued(issued)?;
        *self.issued.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(parts));
        Ok(())
    }

    /// The configuration for a new connection at `now`; changed files are reloaded, and if they
    /// cannot be used the last valid ones are kept. None: there is no certificate yet.
    pub fn config(&self, now: Instant) -> Option<Arc<ClientConfig>> {
        self.current(now).map(|built| built.config)
    }

    /// Which authorities are trusted at `now`. None: there is no certificate yet.
    pub fn authorities(&self, now: Instant) -> Option<AuthoritiesId> {
        self.current(now).map(|built| built.authorities)
    }

    /// As [`ClientTls::config`], for an agent whose certificate is judged after the handshake.
    pub fn deferred(&self, now: Instant) -> Option<DeferredTls> {
        let built = self.current(now)?;
        Some(DeferredTls::new(&built.config, built.verifier))
    }

    fn current(&self, now: Instant) -> Option<BuiltConfig> {
        let issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let files = self.files.as_ref().map(|files| files.current(now));
        let parts: Vec<_> = issued.into_iter().chain(files).collect();
        if parts.is_empty() {
            return None;
        }
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = |known: &&BuiltConfig| {
            known.parts.len() == parts.len() && known.parts.iter().zip(&parts).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        if let Some(known) = built.as_ref().filter(is_current) {
            return Some(known.clone());
        }
        let new = build(parts)?;
        Some(match built.take() {
            Some(earlier) => built.insert(new.after(&earlier)).clone(),
            None => built.insert(new).clone(),
        })
    }
}

/// None only if the provider lacks TLS 1.3, or there is no authority.
fn build(parts: Vec<Arc<ClientParts>>) -> Option<BuiltConfig> {
    let mut roots = RootCertStore::empty();
    for part in &parts {
        roots.roots.extend(authorities_of(&part.authorities).ok()?.roots);
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .ok()?;
    let keys = parts.iter().map(|part| Arc::clone(&part.key)).collect();
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .ok()?
        .with_webpki_verifier(Arc::clone(&verifier))
        .with_client_cert_resolver(Arc::new(ClientKeys::new(keys)));
    config.alpn_protocols = vec![HTTP_PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    Some(BuiltConfig {
        parts,
        config: Arc::new(config),
        verifier,
        authorities: AuthoritiesId::default(),
    })
}
