//! Reads certificates, keys and authorities from PEM files, and detects changes of files.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::{AGENT_DNS_NAME, Validity, VmIdentity, peer_names};

/// Why TLS cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("cannot read {what} from {}", path.display())]
    Read {
        /// The expected content.
        what: &'static str,
        path: PathBuf,
        source: rustls::pki_types::pem::Error,
    },
    /// A file lacks the expected content.
    #[error("{} contains no {what}", path.display())]
    Empty {
        /// The expected content.
        what: &'static str,
        path: PathBuf,
    },
    /// rustls rejects the certificate or the key, or they do not match.
    #[error("{} cannot be used", path.display())]
    Refused { path: PathBuf, source: rustls::Error },
    #[error("the authorities in {} cannot be used", path.display())]
    Authorities {
        path: PathBuf,
        source: rustls::server::VerifierBuilderError,
    },
}

impl TlsError {
    pub fn path(&self) -> &Path {
        match self {
            Self::Read { path, .. }
            | Self::Empty { path, .. }
            | Self::Refused { path, .. }
            | Self::Authorities { path, .. } => path,
        }
    }

    /// Whether a file does not exist (yet), so that a retry may help.
    pub fn is_missing_file(&self) -> bool {
        let Self::Read {
            source: rustls::pki_types::pem::Error::Io(error),
            ..
        } = self
        else {
            return false;
        };
        error.kind() == std::io::ErrorKind::NotFound
    }
}

pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    const WHAT: &str = "certificates";
    let read = |source| TlsError::Read {
        what: WHAT,
        path: path.to_owned(),
        source,
    };
    let chain = CertificateDer::pem_file_iter(path)
        .map_err(read)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(read)?;
    if chain.is_empty() {
        return Err(TlsError::Empty {
            what: "certificate",
            path: path.to_owned(),
        });
    }
    Ok(chain)
}

pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| match source {
        rustls::pki_types::pem::Error::NoItemsFound => TlsError::Empty {
            what: "private key",
            path: path.to_owned(),
        },
        source => TlsError::Read {
            what: "a private key",
            path: path.to_owned(),
            source,
        },
    })
}

pub(super) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    authorities_of(&certificates(path)?).map_err(|source| TlsError::Refused {
        path: path.to_owned(),
        source,
    })
}

pub(super) fn authorities_of(
    certificates: &[CertificateDer<'static>],
) -> Result<RootCertStore, rustls::Error> {
    let mut store = RootCertStore::empty();
    for certificate in certificates {
        store.add(certificate.clone())?;
    }
    Ok(store)
}

/// Identifies the version of a file without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp(Vec<Option<(i64, i64, u64, u64)>>);

impl Stamp {
    pub(super) fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let stamp = |meta: Metadata| (meta.mtime(), meta.mtime_nsec(), meta.size(), meta.ino());
        Self(
            paths
                .into_iter()
                .map(|path| std::fs::metadata(path).ok().map(stamp))
                .collect(),
        )
    }
}

/// Checks that the first certificate of PEM text has the names by which a collector identifies an
/// agent.
///
/// # Errors
/// The missing name, as the end of a sentence.
pub fn check_agent_names(pem: &[u8]) -> Result<(), String> {
    let certificate = CertificateDer::from_pem_slice(pem).map_err(|error| format!("is not PEM: {error}"))?;
    let names = peer_names(&certificate);
    if !names.iter().any(|name| name == AGENT_DNS_NAME) {
        return Err(format!(
            "has no DNS name {AGENT_DNS_NAME}, so collectors would reject it; it has {names:?}"
        ));
    }
    if !names.iter().any(|name| VmIdentity::from_uri(name).is_some()) {
        return Err(format!(
            "has no URI spiffe://<trust-domain>/vmi/<namespace>/<name>/<uid>, so collectors would reject it; it has \
             {names:?}"
        ));
    }
    Ok(())
}

/// Checks PEM text: returns the narrowest validity of its certificates, or none for a private key.
/// `key` expects a private key instead of certificates.
///
/// # Errors
/// Why it cannot be used, as the end of a sentence.
pub fn check_pem(pem: &[u8], key: bool) -> Result<Option<Validity>, String> {
    if key {
        return PrivateKeyDer::from_pem_slice(pem)
            .map(|_| None)
            .map_err(|error| match error {
                rustls::pki_types::pem::Error::NoItemsFound => "contains no private key".to_owned(),
                error => format!("is not PEM: {error}"),
            });
    }
    let mut narrowest: Option<Validity> = None;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("is not PEM: {error}"))?;
        let own = Validity::of(&certificate).ok_or("contains a certificate that cannot be parsed")?;
        narrowest = Some(narrowest.map_or(own, |known| Validity {
            not_before: known.not_before.max(own.not_before),
            not_after: known.not_after.min(own.not_after),
        }));
    }
    narrowest
        .map(Some)
        .ok_or_else(|| "contains no certificate".to_owned())
}
