//! A small blocking JSON client for an API server.

use std::{
    io::{BufRead as _, BufReader},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use rustls::crypto::ring;
use serde_json::{Value, json};
use ureq::{
    Agent, Body,
    http::Response,
    tls::{Certificate, RootCerts, TlsConfig},
};

/// RFC 7386.
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// RFC 6902.
pub const JSON_PATCH: &str = "application/json-patch+json";
/// Kubernetes' strategic merge, which merges lists by key; not for custom resources.
pub const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// Timeout of one request. Some requests wait for etcd, for which the API server times out after
/// one minute.
const DEADLINE: Duration = Duration::from_secs(70);
/// Maximum size of an answer in bytes: more than a list of the largest fleet.
const LARGEST: u64 = 512 * 1024 * 1024;

/// Client of one API server, as one user. Cheap to clone, and usable by many threads at once.
#[derive(Debug, Clone)]
pub struct Client {
    agent: Agent,
    server: String,
    token: String,
}

/// An answer of an API server, whatever its status.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status code.
    pub code: u16,
    /// The body; `{"text": …}` when it is not JSON.
    pub body: Value,
    /// The `Warning` headers, e.g. of admission webhooks.
    pub warnings: Vec<String>,
}

impl Answer {
    /// The body of a success, else an error that quotes the server's message.
    pub fn ok(self) -> Result<Value> {
        let why = || {
            self.body["message"]
                .as_str()
                .map_or_else(|| self.body.to_string(), str::to_owned)
        };
        ensure!((200..300).contains(&self.code), "{}: {}", self.code, why());
        Ok(self.body)
    }
}

impl Client {
    pub(super) fn new(server: &str, ca_pem: &str, token: &str) -> Result<Self> {
        let ca = Certificate::from_pem(ca_pem.as_bytes()).context("the authority's certificate")?;
        // The ring provider is named explicitly: with two providers compiled in there is no
        // default.
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
            .root_certs(RootCerts::new_with_certs(&[ca]))
            .build();
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            // A proxy could only reach its own loopback, not this machine's.
            .proxy(None)
            .user_agent("virtfleet-tests")
            .timeout_global(Some(DEADLINE))
            .tls_config(tls)
            .build()
            .new_agent();
        Ok(Self {
            agent,
            server: server.to_owned(),
            token: format!("Bearer {token}"),
        })
    }

    /// Gets a path, e.g. `/api/v1/nodes?limit=5`.
    pub fn get(&self, path: &str) -> Result<Answer> {
        let request = self
            .agent
            .get(self.url(path))
            .header("authorization", &self.token);
        answer(path, request.call())
    }

    /// The lines of a response that does not end, e.g. of a watch.
    pub(super) fn lines(
        &self,
        path: &str,
    ) -> Result<impl Iterator<Item = std::io::Result<String>> + Send + use<>> {
        let request = self
            .agent
            .get(self.url(path))
            .config()
            .timeout_global(None)
            .build()
            .header("authorization", &self.token);
        let response = request.call().with_context(|| path.to_owned())?;
        ensure!(response.status() == 200, "{path}: {}", response.status());
        Ok(BufReader::new(response.into_body().into_reader()).lines())
    }

    /// Creates an object in a collection.
    pub fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        let request = self.agent.post(self.url(path));
        self.send(path, request, "application/json", body)
    }

    /// Replaces an object.
    pub fn put(&self, path: &str, body: &Value) -> Result<Answer> {
        let request = self.agent.put(self.url(path));
        self.send(path, request, "application/json", body)
    }

    /// Patches an object; `content_type` is e.g. [`MERGE_PATCH`].
    pub fn patch(&self, path: &str, content_type: &str, body: &Value) -> Result<Answer> {
        let request = self.agent.patch(self.url(path));
        self.send(path, request, content_type, body)
    }

    /// Deletes an object without a grace period, or every object of a collection.
    pub fn delete(&self, path: &str) -> Result<Answer> {
        let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0 });
        let request = self.agent.delete(self.url(path)).force_send_body();
        self.send(path, request, "application/json", &options)
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server)
    }

    fn send(
        &self,
        path: &str,
        request: ureq::RequestBuilder<ureq::typestate::WithBody>,
        content_type: &str,
        body: &Value,
    ) -> Result<Answer> {
        let request = request
            .header("authorization", &self.token)
            .header("content-type", content_type);
        answer(path, request.send(body.to_string()))
    }
}

fn answer(path: &str, response: Result<Response<Body>, ureq::Error>) -> Result<Answer> {
    let mut response = response.with_context(|| path.to_owned())?;
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned());
    let warnings = warnings.collect();
    let body = response.body_mut().with_config().limit(LARGEST);
    let bytes = body.read_to_vec().with_context(|| path.to_owned())?;
    let body =
        serde_json::from_slice(&bytes).unwrap_or_else(|_| json!({ "text": String::from_utf8_lossy(&bytes) }));
    Ok(Answer { code, body, warnings })
}
