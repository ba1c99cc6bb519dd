//! HTTP client of the collector's API.

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use ureq::{
    Agent, Body,
    config::Config,
    tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem},
};

use super::{cli::ConnectionArgs, fail::Fail};
use crate::api::{ErrorBody, REVISION_HEADER};

/// Maximum size of a response: enough for a fleet of 100,000 VMs.
const MAX_RESPONSE_BYTES: u64 = 512 * 1024 * 1024;

/// Maximum connections tried until the leader answers a request that only the leader can answer:
/// behind a Service with two replicas each connection reaches it with a probability of one half.
const MAX_LEADER_TRIES: usize = 8;

/// A connection to a collector. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Client {
    config: Config,
    agent: Agent,
    server: String,
    timeout: Duration,
}

/// A response as received.
struct Answer {
    url: String,
    status: StatusCode,
    revision: Option<u64>,
    bytes: Vec<u8>,
}

type UreqResult = Result<http::Response<Body>, ureq::Error>;

impl Answer {
    /// The JSON of a success, or the error.
    fn json(self) -> Result<ApiResponse, Fail> {
        let body: Option<Value> = serde_json::from_slice(&self.bytes).ok();
        match body {
            Some(body) if self.status.is_success() => Ok(ApiResponse {
                url: self.url,
                body,
                revision: self.revision,
            }),
            _ => Err(self.error()),
        }
    }

    /// The text of a success, or the error.
    fn text(self) -> Result<String, Fail> {
        if !self.status.is_success() {
            return Err(self.error());
        }
        let foreign = Fail::Foreign {
            url: self.url,
            what: "bytes that are not text".to_owned(),
        };
        String::from_utf8(self.bytes).map_err(|_| foreign)
    }

    fn error(self) -> Fail {
        let status = self.status;
        let foreign = |what: String| Fail::Foreign {
            url: self.url.clone(),
            what,
        };
        match serde_json::from_slice::<Value>(&self.bytes) {
            Ok(body) => match serde_json::from_value::<ErrorBody>(body) {
                Ok(body) => Fail::Refused(body.error),
                Err(_) => foreign(format!("{status} with other JSON")),
            },
            Err(_) => foreign(format!("{status} without JSON")),
        }
    }
}

/// A response with status 200.
#[derive(Debug)]
pub(super) struct ApiResponse {
    /// Its URL.
    pub(super) url: String,
    pub(super) body: Value,
    /// The fleet's revision.
    pub(super) revision: Option<u64>,
}

impl ApiResponse {
    /// The body as the type of the path.
    pub(super) fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, Fail> {
        T::deserialize(&self.body).map_err(|error| Fail::Foreign {
            url: self.url.clone(),
            what: format!("JSON that this version of virtfleetctl cannot parse ({error}; -o json shows it)"),
        })
    }
}

impl Client {
    pub(super) fn new(connection: &ConnectionArgs) -> Result<Self, Fail> {
        let server = connection.server.trim_end_matches('/').to_owned();
        let uri: http::Uri = server.parse().map_err(|error| {
            Fail::Usage(format!(
                "--server {server:?} is not a URL ({error}); use the form http://host:10912"
            ))
        })?;
        let https = uri.scheme_str() == Some("https");
        let Some(host) = uri.host().filter(|_| https || uri.scheme_str() == Some("http")) else {
            let message =
                format!("--server {server:?} is not an http or https URL; use the form http://host:10912");
            return Err(Fail::Usage(message));
        };
        if !https && (connection.cacert.is_some() || connection.cert.is_some()) {
            let message =
                format!("--cacert, --cert and --key require an https URL, but --server is {server:?}");
            return Err(Fail::Usage(message));
        }
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("virtfleetctl/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls(connection)?);
        // A proxy would connect to its own loopback address.
        if matches!(host, "localhost" | "[::1]") || host.starts_with("127.") {
            config = config.proxy(None);
        }
        let config = config.build();
        Ok(Self {
            agent: config.new_agent(),
            config,
            server,
            timeout: connection.timeout.0,
        })
    }

    /// Sends `GET path?query`. `extra_timeout` extends the timeout for a long poll.
    pub(super) fn get(
        &self,
        path: &str,
        query: &[(&str, String)],
        extra_timeout: Duration,
    ) -> Result<ApiResponse, Fail> {
        let url = self.url(path, query);
        let timeout = self.timeout.saturating_add(extra_timeout);
        self.of_leader(|agent| {
            self.read(&url, self.get_request(agent, &url, "application/json", timeout))?
                .json()
        })
    }

    /// Sends `GET path` for a text.
    pub(super) fn get_text(&self, path: &str) -> Result<String, Fail> {
        let url = self.url(path, &[]);
        let answer = self.get_request(&self.agent, &url, "*/*", self.timeout);
        self.read(&url, answer)?.text()
    }

    /// Sends `POST path` with a JSON body.
    pub(super) fn post(&self, path: &str, body: &Value) -> Result<ApiResponse, Fail> {
        let (url, body) = (self.url(path, &[]), body.to_string());
        self.of_leader(|agent| {
            let answer = agent
                .post(&url)
                .header("accept", "application/json")
                .header("content-type", "application/json")
                .config()
                .timeout_connect(Some(self.timeout))
                .timeout_global(Some(self.timeout))
                .build()
                .send(&body);
            self.read(&url, answer)?.json()
        })
    }

    /// Repeats a request on new connections until the leader answers it, if only the leader can.
    fn of_leader(&self, send: impl Fn(&Agent) -> Result<ApiResponse, Fail>) -> Result<ApiResponse, Fail> {
        let mut answer = send(&self.agent);
        for _ in 1..MAX_LEADER_TRIES {
            match &answer {
                // A new agent opens a new connection.
                Err(Fail::Refused(error)) if error.code == "not_leading" => {
                    answer = send(&self.config.new_agent());
                }
                _ => break,
            }
        }
        answer
    }

    fn url(&self, path: &str, query: &[(&str, String)]) -> String {
        let mut url = format!("{}{path}", self.server);
        for (index, (name, value)) in query.iter().enumerate() {
            url.push(if index == 0 { '?' } else { '&' });
            url.push_str(name);
            url.push('=');
            url.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
        }
        url
    }

    fn get_request(&self, agent: &Agent, url: &str, accept: &str, timeout: Duration) -> UreqResult {
        agent
            .get(url)
            .header("accept", accept)
            .config()
            .timeout_connect(Some(self.timeout))
            .timeout_global(Some(timeout))
            .build()
            .call()
    }

    fn read(&self, url: &str, answer: UreqResult) -> Result<Answer, Fail> {
        let unreachable = |error: ureq::Error| Fail::Unreachable {
            server: self.server.clone(),
            why: self.why(&error),
        };
        let mut response = answer.map_err(unreachable)?;
        let revision = response
            .headers()
            .get(REVISION_HEADER)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let bytes = response
            .body_mut()
            .with_config()
            .limit(MAX_RESPONSE_BYTES)
            .read_to_vec()
            .map_err(unreachable)?;
        Ok(Answer {
            url: url.to_owned(),
            status: response.status(),
            revision,
            bytes,
        })
    }

    /// The cause, without names of Rust types.
    fn why(&self, error: &ureq::Error) -> String {
        match error {
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                "connection refused".to_owned()
            }
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                "the connection was closed in the middle of the answer".to_owned()
            }
            ureq::Error::Io(error) => match error.get_ref().and_then(|inner| inner.downcast_ref()) {
                Some(inner) => tls_failure(inner),
                None => error.to_string(),
            },
            ureq::Error::HostNotFound => "unknown host name".to_owned(),
            ureq::Error::ConnectionFailed => "connection failed".to_owned(),
            ureq::Error::Timeout(_) => {
                format!(
                    "no answer within {} (--timeout)",
                    virtfleet_wire::duration::Span(self.timeout)
                )
            }
            ureq::Error::Rustls(error) => tls_failure(error),
            other => other.to_string(),
        }
    }
}

/// Either side may have rejected the other.
fn tls_failure(error: &rustls::Error) -> String {
    format!("TLS: {error} (see --cacert, --cert and --key)")
}

fn tls(connection: &ConnectionArgs) -> Result<TlsConfig, Fail> {
    let mut config = TlsConfig::builder();
    if let Some(path) = &connection.cacert {
        config = config.root_certs(RootCerts::Specific(Arc::new(certificates("--cacert", path)?)));
    }
    if let Some((cert, key)) = connection.cert.as_ref().zip(connection.key.as_ref()) {
        let chain = certificates("--cert", cert)?;
        let pem = read("--key", key)?;
        let key = PrivateKey::from_pem(&pem).map_err(|error| {
            Fail::Usage(format!("--key {}: no private key in PEM: {error}", key.display()))
        })?;
        config = config.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
    }
    Ok(config.build())
}

fn certificates(option: &str, path: &Path) -> Result<Vec<Certificate<'static>>, Fail> {
    let pem = read(option, path)?;
    let found: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        let message = format!("{option} {}: contains no certificate in PEM form", path.display());
        return Err(Fail::Usage(message));
    }
    Ok(found)
}

fn read(option: &str, path: &Path) -> Result<Vec<u8>, Fail> {
    fs::read(path).map_err(|error| Fail::Usage(format!("{option} {}: {error}", path.display())))
}
