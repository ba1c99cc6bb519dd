//! TLS files that the settings name. `serve` loads them at its start; `check-config` and `doctor`
//! check them with the same functions.

mod check;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use virtfleet_runtime::tls::{ClientRule, ClientTls, ClientTlsPaths, ServerTlsPaths, TlsAcceptor, TlsError};

pub use self::check::check;
pub(crate) use self::check::pem_file;
use crate::config::{ScrapeTls, ServerSettings};

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{key}: cannot use {}", file.display())]
pub struct FileError {
    pub key: String,
    pub file: PathBuf,
    #[source]
    pub source: Box<TlsError>,
}

/// TLS of the client towards agents; none if `scrape.tls` is not set.
///
/// # Errors
/// The file that cannot be used.
pub fn agents(tls: &ScrapeTls) -> Result<Option<ClientTls>, FileError> {
    let (Some(ca), Some(certificate), Some(key)) = (&tls.ca, &tls.certificate, &tls.key) else {
        return Ok(None);
    };
    let paths = ClientTlsPaths {
        ca: ca.into(),
        certificate: certificate.into(),
        key: key.into(),
    };
    let files = [("ca", ca), ("certificate", certificate), ("key", key)];
    ClientTls::new(paths)
        .map(Some)
        .map_err(|source| named("scrape.tls", &files, source))
}

/// TLS of the server; none if `server.tls.certificate` is not set: then HTTP is served, or the
/// collector issues a certificate.
///
/// # Errors
/// The file that cannot be used.
pub fn server(server: &ServerSettings) -> Result<Option<TlsAcceptor>, FileError> {
    let tls = &server.tls;
    let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else {
        return Ok(None);
    };
    let paths = ServerTlsPaths {
        certificate: certificate.into(),
        key: key.into(),
        client_ca: tls.client_ca.as_ref().map(PathBuf::from),
        clients: ClientRule::AllExceptAgents,
    };
    let mut files = vec![("certificate", certificate), ("key", key)];
    files.extend(tls.client_ca.as_ref().map(|file| ("clientCA", file)));
    let acceptor = if server.access.has_tokens() {
        TlsAcceptor::with_optional_certificates(paths)
    } else {
        TlsAcceptor::new(paths)
    };
    acceptor
        .map(Some)
        .map_err(|source| named("server.tls", &files, source))
}

/// The error with the key under which `section` names the file.
fn named(section: &str, files: &[(&str, &String)], source: TlsError) -> FileError {
    let file = source.path().to_owned();
    let key = files.iter().find(|(_, known)| Path::new(known) == file);
    let key = key.map_or(section.to_owned(), |(key, _)| format!("{section}.{key}"));
    FileError {
        key,
        file,
        source: Box::new(source),
    }
}
