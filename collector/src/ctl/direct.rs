//! Requests to the URL of `--server`.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ureq::{
    Agent, RequestBuilder,
    config::Config,
    tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem},
};

use super::{
    cli::ConnectionArgs,
    fail::Fail,
    token_file,
    transport::{ApiCall, CollectorTransport, MAX_RESPONSE_BYTES, RawResponse, retry_after},
};
use crate::api::REVISION_HEADER;

/// A collector at a URL.
#[derive(Debug)]
pub(super) struct DirectTransport {
    config: Config,
    agent: Agent,
    server: String,
    timeout: Duration,
    token: Option<PathBuf>,
}

impl DirectTransport {
    /// The collector at `server`, with the certificates and the token in the arguments.
    pub(super) fn new(server: &str, connection: &ConnectionArgs) -> Result<Self, Fail> {
        let server = server.trim_end_matches('/').to_owned();
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
        let local = matches!(host, "localhost" | "[::1]") || host.starts_with("127.");
        if !https && !local && connection.token_file.is_some() {
            let message =
                format!("--token-file requires an https URL or loopback, but --server is {server:?}");
            return Err(Fail::Usage(message));
        }
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("virtfleetctl/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls(connection)?);
        // A proxy would connect to its own loopback address.
        if local {
            config = config.proxy(None);
        }
        let config = config.build();
        Ok(Self {
            agent: config.new_agent(),
            config,
            server,
            timeout: connection.timeout.0,
            token: connection.token_file.clone(),
        })
    }

    /// Sets headers and timeouts of a request.
    fn configure<B>(
        &self,
        request: RequestBuilder<B>,
        call: ApiCall<'_>,
        authorization: Option<String>,
        timeout: Duration,
    ) -> RequestBuilder<B> {
        let mut request = request.header("accept", call.accept);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        request
            .config()
            .timeout_connect(Some(self.timeout))
            .timeout_global(Some(timeout))
            .build()
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

impl CollectorTransport for DirectTransport {
    fn server(&self) -> &str {
        &self.server
    }

    fn send(&self, call: ApiCall<'_>, timeout: Duration, fresh: bool) -> Result<RawResponse, Fail> {
        let unreachable = |error: ureq::Error| Fail::Unreachable {
            server: self.server.clone(),
            why: self.why(&error),
        };
        // A new agent opens a new connection.
        let agent = if fresh {
            self.config.new_agent()
        } else {
            self.agent.clone()
        };
        let url = format!("{}{}", self.server, call.target);
        let token = self.token.as_deref().map(token_file::read).transpose()?;
        let authorization = token.map(|token| format!("Bearer {token}"));
        let sent = match call.body {
            None => self
                .configure(agent.get(url), call, authorization, timeout)
                .call(),
            Some(body) => self
                .configure(agent.post(url), call, authorization, timeout)
                .header("content-type", "application/json")
                .send(body),
        };
        let mut response = sent.map_err(unreachable)?;
        let revision = response.headers().get(REVISION_HEADER);
        Ok(RawResponse {
            status: response.status(),
            revision: revision.and_then(|value| value.to_str().ok()?.parse().ok()),
            retry_after: retry_after(response.headers()),
            body: response
                .body_mut()
                .with_config()
                .limit(MAX_RESPONSE_BYTES)
                .read_to_vec()
                .map_err(unreachable)?,
        })
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
