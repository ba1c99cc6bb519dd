//! Opens the listeners of the settings: all of them, or none and an error.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use tokio::net::TcpListener;
use virtfleet_runtime::{
    http::Transport,
    tls::{ClientRule, ServerTlsPaths, TlsAcceptor, TlsError},
};
use virtfleet_wire::settings::{Listener, ServerSettings, ServerTls};

/// Why the agent cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be parsed.
    #[error("server.listeners[{name}].address: {address:?} is not ADDRESS:PORT, such as [::]:10911")]
    Address {
        /// The listener's name.
        name: String,
        /// Its address.
        address: String,
    },
    /// Plain HTTP on an address that is not loopback.
    #[error(
        "server.listeners[{name}]: plain HTTP is served on loopback only, not on {address}; use 127.0.0.1 or leave `plain` out"
    )]
    PlainBeyondLoopback {
        /// The listener's name.
        name: String,
        /// Its address.
        address: SocketAddr,
    },
    /// TLS without one of its files.
    #[error(
        "server.listeners[{name}] speaks TLS and server.tls.{key} is not set; set certificate, key and clientCA, or \
         make the listener plain on 127.0.0.1"
    )]
    TlsFile {
        /// The listener's name.
        name: String,
        /// The key that is missing.
        key: &'static str,
    },
    /// A TLS file cannot be used.
    #[error("server.tls cannot be used")]
    Tls(#[from] TlsError),
    /// The kernel refuses the address.
    #[error("server.listeners[{name}]: cannot listen on {address}")]
    Bind {
        /// The listener's name.
        name: String,
        /// Its address.
        address: SocketAddr,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// Binds every listener. If one fails, none listens.
///
/// The settings were checked when they were loaded. The checks here repeat what must never be
/// served.
///
/// # Errors
/// See [`ListenError`].
pub async fn bind(settings: &ServerSettings) -> Result<Vec<(TcpListener, Transport)>, ListenError> {
    let mut tls = None;
    let mut bound = Vec::new();
    for listener in &settings.listeners {
        let address = check(listener)?;
        let transport = match (listener.plain, &tls) {
            (true, _) => Transport::Plain,
            (false, Some(acceptor)) => Transport::Tls(Arc::clone(acceptor)),
            (false, None) => {
                let paths = paths(&settings.tls, &listener.name)?;
                Transport::Tls(tls.insert(Arc::new(TlsAcceptor::new(paths)?)).clone())
            }
        };
        let socket = TcpListener::bind(address)
            .await
            .map_err(|source| ListenError::Bind {
                name: listener.name.clone(),
                address,
                source,
            })?;
        bound.push((socket, transport));
    }
    Ok(bound)
}

/// Checks that `run` could serve with these TLS files, for the doctor. Does not listen.
///
/// # Errors
/// A TLS file cannot be used.
pub fn try_tls(tls: &ServerTls) -> Result<(), ListenError> {
    TlsAcceptor::new(paths(tls, "")?)?;
    Ok(())
}

fn check(listener: &Listener) -> Result<SocketAddr, ListenError> {
    let (name, text) = (&listener.name, &listener.address);
    let address: SocketAddr = text.parse().map_err(|_| ListenError::Address {
        name: name.clone(),
        address: text.clone(),
    })?;
    if listener.plain && !address.ip().is_loopback() {
        return Err(ListenError::PlainBeyondLoopback {
            name: name.clone(),
            address,
        });
    }
    Ok(address)
}

fn paths(tls: &ServerTls, name: &str) -> Result<ServerTlsPaths, ListenError> {
    let file = |value: &Option<String>, key: &'static str| {
        let missing = || ListenError::TlsFile {
            name: name.to_owned(),
            key,
        };
        value.as_ref().map(PathBuf::from).ok_or_else(missing)
    };
    Ok(ServerTlsPaths {
        certificate: file(&tls.certificate, "certificate")?,
        key: file(&tls.key, "key")?,
        client_ca: Some(file(&tls.client_ca, "clientCA")?),
        clients: ClientRule::CollectorsAnd(tls.clients.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(address: &str, plain: bool) -> ServerSettings {
        let listeners = vec![Listener {
            name: "default".into(),
            address: address.into(),
            plain,
        }];
        ServerSettings {
            listeners,
            ..ServerSettings::default()
        }
    }

    #[tokio::test]
    async fn each_reason_names_the_key_and_what_to_do() {
        let refuse =
            async |settings: ServerSettings| bind(&settings).await.map(|_| ()).unwrap_err().to_string();
        assert!(
            refuse(listener("localhost", true))
                .await
                .contains("listeners[default].address")
        );
        assert!(
            refuse(listener("0.0.0.0:0", true))
                .await
                .contains("loopback only")
        );
        assert!(
            refuse(listener("127.0.0.1:0", false))
                .await
                .contains("server.tls.certificate is not set")
        );
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        assert!(refuse(listener(&address, true)).await.contains(&address));
    }

    #[tokio::test]
    async fn plain_http_on_loopback_needs_no_certificate() {
        let bound = bind(&listener("127.0.0.1:0", true)).await.unwrap();
        assert!(matches!(bound.as_slice(), [(_, Transport::Plain)]));
    }
}
