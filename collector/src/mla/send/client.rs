//! One HTTP exchange with a receiver: HTTP/1.1 over kept connections, with TLS by hyper-rustls.
//! Redirects are not followed. Everything that is received is bounded.

use std::{error::Error, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use tokio::time::{Instant, timeout_at};
use virtfleet_remote_write::{AnswerHeaders, WireForm, headers};

use super::{
    connector::ReceiverConnector,
    endpoint::{Endpoint, EndpointError},
    outcome::SendFailure,
};
use crate::{bounded::bounded, dial_guard::DialGuard};

/// Timeout of a TCP connection, if the endpoint's timeout is not shorter.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// An unused connection is closed after this time, before the receivers' own limits (nginx: 75 s).
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// Connections that are kept: requests of one stream follow one another.
const MAX_IDLE_CONNECTIONS: usize = 1;
/// Maximum bytes of a response head.
const MAX_HEAD_BYTES: usize = 32 << 10;
/// Bytes of a response body that are read so that the connection can be used again.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Characters of an answer's body that are shown to people.
const MAX_MESSAGE_CHARS: usize = 300;

#[derive(Debug)]
pub(super) struct HttpClient {
    client: legacy::Client<HttpsConnector<ReceiverConnector>, Full<Bytes>>,
    endpoint: Endpoint,
    user_agent: HeaderValue,
}

#[derive(Debug)]
pub(super) struct ReceiverAnswer {
    pub(super) status: u16,
    pub(super) headers: AnswerHeaders,
    /// Beginning of the body, for people.
    pub(super) message: String,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct ExchangeError {
    pub(super) reason: SendFailure,
    pub(super) message: String,
}

impl HttpClient {
    pub(super) fn new(endpoint: Endpoint, guard: Option<Arc<DialGuard>>) -> Result<Self, EndpointError> {
        endpoint.check()?;
        let user_agent = HeaderValue::from_str(&endpoint.user_agent)
            .map_err(|_| EndpointError::UserAgent(endpoint.user_agent.clone()))?;
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .http1_max_buf_size(MAX_HEAD_BYTES)
            .build(connector(&endpoint, guard)?);
        Ok(Self {
            client,
            endpoint,
            user_agent,
        })
    }

    /// Sends one request and reads the answer. Once its head is there, the status counts, whatever
    /// happens to the body.
    pub(super) async fn post(&self, form: WireForm, body: Bytes) -> Result<ReceiverAnswer, ExchangeError> {
        let timeout = self.endpoint.timeout;
        let deadline = Instant::now() + timeout;
        let sending = self.client.request(self.request(form, body)?);
        let response = match timeout_at(deadline, sending).await {
            Ok(response) => response.map_err(|error| failed(&error, error.is_connect()))?,
            Err(_) => {
                return Err(ExchangeError {
                    reason: SendFailure::Timeout,
                    message: format!("no answer within {timeout:?}"),
                });
            }
        };
        let get = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let headers = AnswerHeaders::read(get);
        let status = response.status().as_u16();
        let mut text = Vec::new();
        drop(timeout_at(deadline, read_body(response.into_body(), &mut text)).await);
        Ok(ReceiverAnswer {
            status,
            headers,
            message: bounded(String::from_utf8_lossy(&text).trim(), MAX_MESSAGE_CHARS),
        })
    }

    fn request(&self, form: WireForm, body: Bytes) -> Result<Request<Full<Bytes>>, ExchangeError> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.endpoint.url.clone())
            .header(header::USER_AGENT, self.user_agent.clone());
        if let Some(all) = request.headers_mut() {
            // The reserved ones come last and replace whatever has their name.
            all.extend(self.endpoint.headers.clone());
            for (name, value) in headers(form.protocol, form.compression) {
                all.insert(name, HeaderValue::from_static(value));
            }
        }
        request.body(Full::new(body)).map_err(|error| ExchangeError {
            reason: SendFailure::Interrupted,
            message: format!("cannot build the request: {error}"),
        })
    }
}

fn connector(
    endpoint: &Endpoint,
    guard: Option<Arc<DialGuard>>,
) -> Result<HttpsConnector<ReceiverConnector>, EndpointError> {
    let http = ReceiverConnector::new(guard, CONNECT_TIMEOUT.min(endpoint.timeout));
    let mut tls = match &endpoint.tls {
        Some(config) => ClientConfig::clone(config),
        None => trusts_none()?,
    };
    // The builder sets it, and panics if it is set.
    tls.alpn_protocols.clear();
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls);
    let builder = if endpoint.is_https() {
        builder.https_only()
    } else {
        builder.https_or_http()
    };
    let Some(name) = &endpoint.server_name else {
        return Ok(builder.enable_http1().wrap_connector(http));
    };
    let malformed = |_| EndpointError::ServerName(name.clone());
    let resolver = FixedServerNameResolver::new(ServerName::try_from(name.clone()).map_err(malformed)?);
    let builder = builder.with_server_name_resolver(resolver);
    Ok(builder.enable_http1().wrap_connector(http))
}

/// For an endpoint without TLS: its connector requires a configuration and does not use it.
fn trusts_none() -> Result<ClientConfig, EndpointError> {
    let provider = Arc::new(ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.map_err(|_| EndpointError::NoTls)?;
    Ok(builder
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth())
}

/// Reads a body, so that its connection can be used again, and keeps its beginning in `text`. Stops
/// at a body that is too large.
async fn read_body(mut body: Incoming, text: &mut Vec<u8>) {
    let mut total = 0;
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        total += data.len();
        let room = (4 * MAX_MESSAGE_CHARS).saturating_sub(text.len());
        text.extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
        if total > MAX_BODY_BYTES {
            break;
        }
    }
}

/// Names the failure by its deepest cause.
fn failed(error: &(dyn Error + 'static), connecting: bool) -> ExchangeError {
    let mut tls = false;
    let mut message = error.to_string();
    let mut cause = Some(error);
    while let Some(current) = cause {
        tls |= current.is::<rustls::Error>();
        message = current.to_string();
        cause = inner(current);
    }
    let reason = match (tls, connecting) {
        (true, _) => SendFailure::Tls,
        (false, true) => SendFailure::Connect,
        (false, false) => SendFailure::Interrupted,
    };
    ExchangeError {
        reason,
        message: bounded(&message, MAX_MESSAGE_CHARS),
    }
}

/// The next cause. An I/O error names the cause of what it wraps, and not what it wraps.
fn inner<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let wrapped = error
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref);
    match wrapped {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}
