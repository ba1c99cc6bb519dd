//! One server with the query API of Prometheus. The client is that of the kube crate, which does
//! TLS, client certificates and URLs with a path for any HTTP server.

use std::{error::Error as _, fs, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, StatusCode, header::AUTHORIZATION};
use http_body_util::{BodyExt as _, Limited};
use kube::{Client, Config, client::Body, config::AuthInfo};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use virtfleet_collector_core::longer_history::{HistoryPlan, PromSeries};
use zeroize::Zeroizing;

use crate::{bounded::bounded, config::PrometheusSettings};

/// Maximum bytes of an answer: a history of one series has 4 KiB.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Maximum characters kept of an error.
const MAX_ERROR_CHARS: usize = 300;

/// A response of any status.
pub(crate) struct PromResponse {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// A client with the present content of all files in the settings.
pub(crate) struct PrometheusClient(Client);

impl PrometheusClient {
    /// Reads the files. Nothing is sent yet.
    ///
    /// # Errors
    /// The key in the settings, the file, and what is wrong with it.
    pub(crate) async fn connect(settings: PrometheusSettings) -> Result<Self, String> {
        // A file on a network may block.
        let config = tokio::task::spawn_blocking(move || config(&settings));
        let config = config.await.map_err(|error| error.to_string())??;
        match Client::try_from(config) {
            Ok(client) => Ok(Self(client)),
            Err(error) => Err(format!("prometheus.tls: {error}")),
        }
    }

    /// Sends one query.
    ///
    /// # Errors
    /// The connection failed, the status is not 200, or the answer is no series: why.
    pub(super) async fn query(&self, query: &str, plan: &HistoryPlan) -> Result<PromSeries, String> {
        let path = format!(
            "/api/v1/query_range?{}&start={}&end={}&step={}",
            query_parameter(query),
            plan.start,
            plan.end,
            plan.step
        );
        self.get(&path).await?.read(PromSeries::parse)
    }

    /// Sends `GET path`, below the path of the URL in the settings.
    ///
    /// # Errors
    /// The connection failed, or the body is too long: why.
    pub(crate) async fn get(&self, path: &str) -> Result<PromResponse, String> {
        let request = Request::get(path)
            .body(Body::empty())
            .map_err(|e| e.to_string())?;
        let response = self.0.send(request).await.map_err(|error| deepest(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY_BYTES).collect().await;
        let body = body.map_err(|error| {
            format!("the answer ended early or has more than {MAX_BODY_BYTES} bytes: {error}")
        })?;
        Ok(PromResponse {
            status,
            body: body.to_bytes(),
        })
    }
}

impl PromResponse {
    /// Reads the body with `parse`. Errors have the same format as answers, with the reason.
    ///
    /// # Errors
    /// The status is not 200, or the body cannot be parsed: why.
    pub(crate) fn read<T>(&self, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T, String> {
        let status = self.status;
        match (status, parse(&self.body)) {
            (StatusCode::OK, Ok(answer)) => Ok(answer),
            (StatusCode::OK, Err(why)) => Err(bounded(&why, MAX_ERROR_CHARS)),
            (_, Err(why)) => Err(bounded(&format!("{status}: {why}"), MAX_ERROR_CHARS)),
            (_, Ok(_)) => Err(status.to_string()),
        }
    }
}

/// `query=…` of a URL.
pub(crate) fn query_parameter(query: &str) -> String {
    format!("query={}", utf8_percent_encode(query, NON_ALPHANUMERIC))
}

fn config(settings: &PrometheusSettings) -> Result<Config, String> {
    let url = settings
        .url
        .parse()
        .map_err(|_| format!("prometheus.url: {:?} is malformed", settings.url))?;
    let mut config = Config::new(url);
    config.connect_timeout = Some(settings.timeout.0);
    config.default_retry = false;
    config.headers = headers(settings)?;
    let tls = &settings.tls;
    config.tls_server_name.clone_from(&tls.server_name);
    if let Some(path) = &tls.ca {
        read("tls.ca", path)?;
        config.root_cert_file = Some(PathBuf::from(path));
    }
    if let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) {
        read("tls.certificate", certificate)?;
        read("tls.key", key)?;
        config.auth_info = AuthInfo {
            client_certificate: Some(certificate.clone()),
            client_key: Some(key.clone()),
            ..AuthInfo::default()
        };
    }
    Ok(config)
}

/// The headers of each request, with that for authorization.
fn headers(settings: &PrometheusSettings) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut all = Vec::new();
    for (at, header) in settings.headers.iter().enumerate() {
        let key = format!("headers[{at}]");
        let value = match (&header.value, &header.file) {
            (Some(value), _) => Zeroizing::new(value.clone()),
            (None, Some(path)) => read(&format!("{key}.file"), path)?,
            (None, None) => continue,
        };
        let name = header
            .name
            .parse()
            .map_err(|_| format!("prometheus.{key}.name is malformed"))?;
        all.push((name, secret(&key, &value)?));
    }
    let auth = &settings.auth;
    if let Some(path) = &auth.token_file {
        let token = read("auth.tokenFile", path)?;
        let value = Zeroizing::new(format!("Bearer {}", *token));
        all.push((AUTHORIZATION, secret("auth.tokenFile", &value)?));
    } else if let (Some(user), Some(path)) = (&auth.username, &auth.password_file) {
        let password = read("auth.passwordFile", path)?;
        let pair = Zeroizing::new(format!("{user}:{}", *password));
        let value = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
        all.push((AUTHORIZATION, secret("auth.passwordFile", &value)?));
    }
    Ok(all)
}

/// A file without white space around its content. `key` is its path below `prometheus`.
fn read(key: &str, path: &str) -> Result<Zeroizing<String>, String> {
    let text = fs::read_to_string(path).map(Zeroizing::new);
    let text = text.map_err(|error| format!("prometheus.{key}: {path} cannot be read: {error}"))?;
    let content = text.trim();
    if content.is_empty() {
        return Err(format!("prometheus.{key}: {path} is empty"));
    }
    Ok(Zeroizing::new(content.to_owned()))
}

fn secret(key: &str, value: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| format!("prometheus.{key} has characters that no header may have"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The deepest cause of an error, which says what went wrong.
fn deepest(error: &kube::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(current) = cause {
        message = current.to_string();
        cause = current.source();
    }
    bounded(&message, MAX_ERROR_CHARS)
}
