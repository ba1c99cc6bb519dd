//! TCP, TLS 1.3 and HTTP to an agent's port, with a limit on the received bytes. Who answers is
//! checked by the types around it: [`super::connection::AgentConnection`] for data of a guest,
//! [`crate::enrolment`] for a guest that has no certificate yet.

use std::{
    error::Error,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, client::conn::http1, header, http::request::Builder};
use hyper_util::rt::TokioIo;
use rustls::{
    AlertDescription, ClientConfig,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{
    net::TcpStream,
    task::{AbortHandle, JoinHandle},
};
use virtfleet_collector_core::{
    dial::DialTarget,
    pull_result::{Failure, FailureClass, FailurePoint},
};
use virtfleet_runtime::tls::{AGENT_DNS_NAME, PUSH_PROTOCOL};

use super::{
    body,
    meter::{Meter, Metered},
    way,
};

/// A connection for consecutive requests; dropping it closes it.
#[derive(Debug)]
pub(crate) struct AgentTransport {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
    /// Why the connection ended, if hyper reported that to the driver and not to the request.
    ended: Arc<OnceLock<hyper::Error>>,
    address: SocketAddr,
    meter: Meter,
}

/// Why a connection was not opened.
#[derive(Debug)]
pub(crate) struct OpenError {
    pub(crate) failure: Failure,
    /// The peer's certificate was rejected; the connection worked otherwise.
    pub(crate) rejected_certificate: bool,
}

impl From<Failure> for OpenError {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            rejected_certificate: false,
        }
    }
}

impl Drop for AgentTransport {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn fail(class: FailureClass, message: String) -> Failure {
    Failure::new(class, message)
}

impl AgentTransport {
    /// Connects to `target` by its way, with TLS. Returns the connection and the chain that the
    /// peer presented, its own certificate first. The caller adds the way to the failure. `awaited`
    /// is the point that has not answered yet, if that is known: the relay, and later the agent.
    pub(crate) async fn open(
        target: &DialTarget,
        connect_timeout: Duration,
        tls: Arc<ClientConfig>,
        awaited: &mut Option<FailurePoint>,
    ) -> Result<(Self, Vec<CertificateDer<'static>>), OpenError> {
        let stream = connect(target, connect_timeout, awaited).await?;
        *awaited = Some(FailurePoint::Agent);
        Self::over(stream, target.address, tls).await
    }

    /// The same over a connection to `address` that exists already. Who opened it does not matter:
    /// this side is the client of TLS and of HTTP.
    pub(crate) async fn over(
        stream: TcpStream,
        address: SocketAddr,
        tls: Arc<ClientConfig>,
    ) -> Result<(Self, Vec<CertificateDer<'static>>), OpenError> {
        drop(stream.set_nodelay(true));
        let meter = Meter::default();
        meter.start_exchange(0);
        let stream = Metered::new(stream, meter.clone());
        let name = ServerName::try_from(AGENT_DNS_NAME)
            .map_err(|error| fail(FailureClass::Tls, error.to_string()))?;
        let is_push = tls.alpn_protocols == [PUSH_PROTOCOL];
        let connector = tokio_rustls::TlsConnector::from(tls);
        let stream = connector.connect(name, stream).await.map_err(|error| OpenError {
            rejected_certificate: is_rejected_certificate(&error),
            failure: if is_push && alert_in(&error) == Some(AlertDescription::NoApplicationProtocol) {
                no_push(address)
            } else {
                let message = format!("TLS handshake with {address} failed: {error}");
                fail(FailureClass::Tls, message)
            },
        })?;
        if is_push && stream.get_ref().1.alpn_protocol() != Some(PUSH_PROTOCOL) {
            return Err(no_push(address).into());
        }
        let presented = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let chain = presented.iter().map(|one| one.clone().into_owned()).collect();
        let (sender, connection) = http1::Builder::new()
            // hyper's buffer grows up to this size and stays allocated with the connection, for
            // every guest.
            .max_buf_size(16 * 1024)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| {
                fail(
                    FailureClass::Connect,
                    format!("HTTP with {address} failed: {error}"),
                )
            })?;
        let ended = Arc::new(OnceLock::new());
        let why = Arc::clone(&ended);
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, %address, "connection ended");
                why.get_or_init(|| error);
            }
        });
        let transport = Self {
            sender,
            driver,
            ended,
            address,
            meter,
        };
        Ok((transport, chain))
    }

    /// Closes the connection, and tells whether it is closed.
    pub(super) fn closer(&self) -> AbortHandle {
        self.driver.abort_handle()
    }

    /// Whether the agent has not closed the connection yet.
    pub(crate) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The failure if the peer sent more bytes than an exchange may have; it then explains all
    /// other failures.
    pub(crate) fn over_budget(&self, path: &str) -> Option<Failure> {
        self.meter.is_spent().then(|| {
            let message = format!(
                "the answer to {path} exceeds the maximum size including headers; the rest was not read"
            );
            fail(FailureClass::TooLarge, message)
        })
    }

    /// Sends a request and waits for the response head. The whole response may have `budget` bytes
    /// plus some overhead.
    pub(crate) async fn send(
        &mut self,
        request: Builder,
        path: &str,
        body: Bytes,
        budget: usize,
    ) -> Result<Response<Incoming>, Failure> {
        self.meter.start_exchange(budget);
        if let Err(error) = self.sender.ready().await {
            return Err(self.lost(path, Some(&error)));
        }
        let request = request
            .uri(path)
            .header(header::HOST, AGENT_DNS_NAME)
            .header(
                header::USER_AGENT,
                concat!("virtfleet-collector/", env!("CARGO_PKG_VERSION")),
            )
            .body(Full::new(body))
            .map_err(|error| fail(FailureClass::Http, error.to_string()))?;
        match self.response(request).await {
            Ok(response) => Ok(response),
            Err(error) => Err(self.lost(path, error.as_ref())),
        }
    }

    /// Reads a whole body of at most `limit` bytes.
    pub(crate) async fn read_body(
        &self,
        response: Response<Incoming>,
        path: &str,
        limit: usize,
    ) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let read = body::pieces(response.into_body(), path, limit, |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })
        .await;
        read.map_err(|failure| self.over_budget(path).unwrap_or(failure))?;
        Ok(bytes)
    }

    /// Sends a request and waits for the response head or the end of the connection. With hyper
    /// 1.12 alone, a request sometimes never ends if its connection is closed while it is being
    /// sent.
    async fn response(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Option<hyper::Error>> {
        let mut answer = pin!(self.sender.send_request(request));
        tokio::select! {
            biased;
            answer = &mut answer => return answer.map_err(Some),
            _ = &mut self.driver => {}
        }
        // The response may have arrived between the two checks.
        match tokio::time::timeout(Duration::ZERO, answer).await {
            Ok(answer) => answer.map_err(Some),
            Err(_) => Err(None),
        }
    }

    /// Why there was no response. A TLS 1.3 client learns only here that the server rejects its
    /// certificate: its own side of the handshake has already finished (RFC 8446, 4.4.2.4 and E.1).
    fn lost(&self, path: &str, error: Option<&hyper::Error>) -> Failure {
        if let Some(failure) = self.over_budget(path) {
            return failure;
        }
        let mut errors = error.into_iter().chain(self.ended.get());
        if let Some(alert) = errors.clone().find_map(alert) {
            return refused(self.address, alert);
        }
        if errors.clone().any(hyper::Error::is_parse_too_large) {
            let message =
                format!("the answer to {path} exceeds the maximum size of headers; the rest was not read");
            return fail(FailureClass::TooLarge, message);
        }
        let error = errors
            .next()
            .map_or_else(|| "the connection was closed".to_owned(), ToString::to_string);
        let message = format!("the agent closed the connection before it answered {path}: {error}");
        fail(FailureClass::Connect, message)
    }
}

async fn connect(
    target: &DialTarget,
    timeout: Duration,
    awaited: &mut Option<FailurePoint>,
) -> Result<TcpStream, Failure> {
    let connected = tokio::time::timeout(timeout, way::connect(target, awaited)).await;
    connected.unwrap_or_else(|_| {
        let message = if *awaited == Some(FailurePoint::Relay) {
            format!("no answer within {timeout:?}: stopped while connecting to the relay")
        } else {
            format!(
                "no answer from {} within {timeout:?}: stopped while connecting",
                target.address
            )
        };
        Err(fail(FailureClass::Timeout, message).at(*awaited))
    })
}

/// Whether this side rejected the peer's certificate.
fn is_rejected_certificate(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

/// The TLS alert with which the peer ended the connection, if any.
fn alert(error: &hyper::Error) -> Option<AlertDescription> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(alert) = error.downcast_ref().and_then(alert_in) {
            return Some(alert);
        }
        cause = error.source();
    }
    None
}

fn alert_in(error: &io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

/// A peer that did not open the connection as an agent does.
fn no_push(address: SocketAddr) -> Failure {
    let message = format!(
        "{address} does not speak {}: it is not an agent that has connected by itself (a forwarded port?), or an agent \
         of an earlier version (update it)",
        String::from_utf8_lossy(PUSH_PROTOCOL)
    );
    fail(FailureClass::Tls, message)
}

fn refused(address: SocketAddr, alert: AlertDescription) -> Failure {
    let message = match alert {
        AlertDescription::CertificateExpired => format!(
            "the agent at {address} rejects this collector's certificate as not valid by the guest's clock; is that \
             clock right (in the guest: timedatectl), and is the collector's certificate still valid?"
        ),
        _ => format!(
            "the agent at {address} ended TLS with {alert:?}; its log has the reason (in the guest: journalctl -u virtfleet-agent)"
        ),
    };
    fail(FailureClass::Tls, message)
}
