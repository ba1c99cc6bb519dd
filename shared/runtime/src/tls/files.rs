//! Certificates, keys and authorities from PEM files, and whether the files have changed.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is no PEM.
    #[error("cannot read {what} from {}", path.display())]
    Read {
        /// What was looked for.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// A file holds none of what it should.
    #[error("{} holds no {what}", path.display())]
    Empty {
        /// What was looked for.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// rustls refuses the certificate, the key, or that they go together.
    #[error("{} cannot be used", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The authorities cannot be used to verify anybody.
    #[error("the authorities in {} cannot be used", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rustls::server::VerifierBuilderError,
    },
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
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|source| TlsError::Refused {
            path: path.to_owned(),
            source,
        })?;
    }
    Ok(store)
}

/// What identifies a file's content without reading it.
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

/// What a person wants to know of a certificate file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSummary {
    /// URIs and DNS names that it carries.
    pub names: Vec<String>,
    /// Certificates in the file.
    pub chain: usize,
}

impl CertificateSummary {
    /// Reads a certificate file.
    pub fn read(path: &Path) -> Result<Self, TlsError> {
        let chain = certificates(path)?;
        Ok(Self {
            names: super::peer_names(&chain[0]),
            chain: chain.len(),
        })
    }
}
