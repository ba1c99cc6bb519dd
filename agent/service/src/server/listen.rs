//! Opens the listeners of the settings: all of them, or none and an error.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use tokio::net::TcpListener;
use virtfleet_runtime::{
    http::Transport,
    tls::{ClientRule, HeldTls, ServerTlsPaths, TlsAcceptor, TlsError},
};
use virtfleet_wire::settings::{Listener, ServerSettings, ServerTls};

use super::passed::PassedSockets;
use crate::enrolment::Enrolment;

/// Why the agent cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("server.listeners[{name}].address: {address:?} is not ADDRESS:PORT, such as [::]:10911")]
    Address { name: String, address: String },
    #[error(
        "server.listeners[{name}]: plain HTTP is served on loopback only, not on {address}; use 127.0.0.1 or leave `plain` out"
    )]
    PlainBeyondLoopback { name: String, address: SocketAddr },
    /// TLS without one of its files.
    #[error(
        "server.listeners[{name}] speaks TLS and server.tls.{key} is not set; set certificate, key and clientCA, or \
         make the listener plain on 127.0.0.1"
    )]
    TlsFile { name: String, key: &'static str },
    #[error("server.tls cannot be used")]
    Tls(#[from] TlsError),
    #[error("cannot use a socket that systemd has passed")]
    Passed(#[from] std::io::Error),
    #[error("server.listeners[{name}]: cannot listen on {address}")]
    Bind {
        name: String,
        address: SocketAddr,
        source: std::io::Error,
    },
}

/// Binds every listener. If one fails, none listens.
///
/// A listener takes one of the `passed` sockets, which systemd has opened, if that covers its
/// address; otherwise it opens one of its own. Passed sockets that no listener takes are closed.
///
/// The settings were checked when they were loaded. The checks here repeat what must never be
/// served.
///
/// # Errors
/// See [`ListenError`].
pub async fn bind(
    settings: &ServerSettings,
    enrolment: Option<&Enrolment>,
    passed: Vec<std::net::TcpListener>,
) -> Result<Vec<(TcpListener, Transport)>, ListenError> {
    let mut tls = None;
    let mut bound = Vec::new();
    let mut passed = PassedSockets::new(passed);
    for listener in &settings.listeners {
        let address = check(listener)?;
        let transport = match (listener.plain, &tls) {
            (true, _) => Transport::Plain,
            (false, Some(acceptor)) => Transport::Tls(Arc::clone(acceptor)),
            (false, None) => {
                let acceptor = acceptor(&settings.tls, enrolment, &listener.name)?;
                Transport::Tls(tls.insert(Arc::new(acceptor)).clone())
            }
        };
        let Some(transport) = passed.take(address, transport) else {
            continue;
        };
        let failed = |source| ListenError::Bind {
            name: listener.name.clone(),
            address,
            source,
        };
        bound.push((TcpListener::bind(address).await.map_err(failed)?, transport));
    }
    bound.extend(passed.into_listeners()?);
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

/// TLS for the connection that the agent opens. The peer must be a collector: those whom
/// `server.tls.clients` lists read from listeners only.
///
/// # Errors
/// A TLS file cannot be used.
pub fn push_tls(tls: &ServerTls, enrolment: Option<&Enrolment>) -> Result<TlsAcceptor, ListenError> {
    let tls = ServerTls {
        clients: Vec::new(),
        ..tls.clone()
    };
    Ok(acceptor(&tls, enrolment, "(push)")?.for_push())
}

fn acceptor(tls: &ServerTls, enrolment: Option<&Enrolment>, name: &str) -> Result<TlsAcceptor, ListenError> {
    let Some(enrolment) = enrolment else {
        return Ok(TlsAcceptor::new(paths(tls, name)?)?);
    };
    Ok(TlsAcceptor::held(HeldTls {
        identity: enrolment.identity(),
        client_ca: file(tls.client_ca.as_ref(), "clientCA", name)?,
        clients: ClientRule::CollectorsAnd(tls.clients.clone()),
    })?)
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

fn file(value: Option<&String>, key: &'static str, name: &str) -> Result<PathBuf, ListenError> {
    let missing = || ListenError::TlsFile {
        name: name.to_owned(),
        key,
    };
    value.map(PathBuf::from).ok_or_else(missing)
}

fn paths(tls: &ServerTls, name: &str) -> Result<ServerTlsPaths, ListenError> {
    Ok(ServerTlsPaths {
        certificate: file(tls.certificate.as_ref(), "certificate", name)?,
        key: file(tls.key.as_ref(), "key", name)?,
        client_ca: Some(file(tls.client_ca.as_ref(), "clientCA", name)?),
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
        let refuse = async |settings: ServerSettings| {
            bind(&settings, None, Vec::new())
                .await
                .map(|_| ())
                .unwrap_err()
                .to_string()
        };
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
        let bound = bind(&listener("127.0.0.1:0", true), None, Vec::new())
            .await
            .unwrap();
        assert!(matches!(bound.as_slice(), [(_, Transport::Plain)]));
    }
}
