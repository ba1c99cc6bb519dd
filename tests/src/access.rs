//! Access to a collector's API: tokens, and a client that sends them.

use std::{
    fs::{self, Permissions},
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::sched::{CloneFlags, unshare};
use rustls::ClientConfig;
use serde_json::Value;
use virtfleet_runtime::digest::Sha256;

use crate::{
    bins,
    cluster::live::WAIT_TIMEOUT,
    pki::{AGENT_DNS, Authority, Files},
    process::Launch,
    scrape::{Answer, Client},
};

/// Header with a token for the collector, which an API server's proxy passes on.
pub const TOKEN_HEADER: &str = "virtfleet-authorization";

/// Paths of the API without parameters, each of which answers with data or with a denial.
pub const READ_PATHS: [&str; 23] = [
    "/api",
    "/api/v1/ca",
    "/api/v1/enrolments",
    "/api/v1/tokens",
    "/api/v1/status",
    "/api/v1/vms",
    "/api/v1/events",
    "/api/v1/migrations",
    "/api/v1/placement",
    "/api/v1/queues",
    "/api/v1/targets",
    "/api/v1/top/hosts",
    "/api/v1/top/vms",
    "/api/v1/hosts",
    "/api/v1/clusters",
    "/api/v1/findings",
    "/api/v1/labels",
    "/api/v1/labels/inputs",
    "/api/v1/openapi.json",
    "/sd",
    "/metrics/fleet",
    "/metrics",
    "/readyz",
];

/// Whether only callers that see the whole fleet may read a path.
pub fn is_for_whole_fleet(path: &str) -> bool {
    const PATHS: [&str; 5] = [
        "/metrics",
        "/api/v1/ca",
        "/api/v1/enrolments",
        "/api/v1/placement",
        "/api/v1/tokens",
    ];
    PATHS.contains(&path) || path.starts_with("/api/v1/hosts/")
}

/// A line of a file of static tokens; `rest` has the name and the scopes.
pub fn token_line(token: &str, rest: &str) -> String {
    let mut hash = Sha256::default();
    hash.update(token.as_bytes());
    format!("sha256:{},{rest}\n", hash.hex())
}

/// Writes the file of static tokens in one step, because an empty one would revoke all. Only its
/// owner may write it, whatever umask the tests have.
pub fn write_tokens(file: &Path, text: &str) -> Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::set_permissions(&new, Permissions::from_mode(0o644))?;
    Ok(fs::rename(new, file)?)
}

/// The certificate of a collector's API: for its address, for its Service, and for [`Api`].
///
/// Writes `api.pem` and `api.key` into `folder`.
pub fn api_certificate(authority: &Authority, folder: &Path) -> Result<Files> {
    let names = [AGENT_DNS, "localhost", "virtfleet-collector.virtfleet.svc"];
    let purpose = rcgen::ExtendedKeyUsagePurpose::ServerAuth;
    let identity = authority.issue("api", "https://collector.test", &names, purpose)?;
    crate::pki::write(folder, "api", authority, &identity)
}

/// A client of a collector's API over TLS, without a certificate of its own.
pub struct Api {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
}

impl Api {
    /// A client that trusts `authority`.
    pub fn new(address: SocketAddr, authority: &Authority) -> Result<Self> {
        let tls = authority.anonymous_client_config()?;
        Ok(Self { address, tls })
    }

    /// As [`Api::new`], with a certificate of its own.
    pub fn with_certificate(address: SocketAddr, tls: Arc<ClientConfig>) -> Self {
        Self { address, tls }
    }

    /// The response to a request, with a bearer token or without.
    pub fn get(&self, token: Option<&str>, path: &str) -> Result<Answer> {
        let mut client = Client::tls(self.address, Arc::clone(&self.tls), WAIT_TIMEOUT)?;
        match token {
            Some(token) => client.get_with(path, &[("authorization", &format!("Bearer {token}"))]),
            None => client.get(path),
        }
    }

    /// Status and text of a response.
    pub fn text(&self, token: Option<&str>, path: &str) -> Result<(u16, String)> {
        let answer = self.get(token, path)?;
        Ok((answer.status.as_u16(), answer.text()?.to_owned()))
    }

    /// Status and text of the response to a POST request with a JSON body and a bearer token.
    pub fn post(&self, token: &str, path: &str, body: &Value) -> Result<(u16, String)> {
        let mut client = Client::tls(self.address, Arc::clone(&self.tls), WAIT_TIMEOUT)?;
        let token = format!("Bearer {token}");
        let headers = [
            ("authorization", token.as_str()),
            ("content-type", "application/json"),
        ];
        let answer = client.post_bytes(path, &headers, serde_json::to_vec(body)?)?;
        Ok((answer.status.as_u16(), answer.text()?.to_owned()))
    }

    /// Status and text of a response that does not end by itself, until `is_last` of the text so
    /// far.
    pub fn stream(
        &self,
        token: &str,
        path: &str,
        is_last: impl FnMut(&str) -> bool,
    ) -> Result<(u16, String)> {
        let mut client = Client::tls(self.address, Arc::clone(&self.tls), WAIT_TIMEOUT)?;
        let token = format!("Bearer {token}");
        let (status, text) = client.stream(path, &[("authorization", &token)], is_last)?;
        Ok((status.as_u16(), text))
    }

    /// Names of the listed items, as `namespace/name` if they have a namespace.
    pub fn names(&self, token: &str, path: &str) -> Result<Vec<String>> {
        let list: Value = self.get(Some(token), path)?.ok()?.json()?;
        let items = list["items"].as_array().context("items")?;
        let name = |item: &Value| match (item["namespace"].as_str(), item["name"].as_str()) {
            (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
            (_, name) => name.unwrap_or_default().to_owned(),
        };
        Ok(items.iter().map(name).collect())
    }
}

/// `virtfleetctl` without a collector, a kubeconfig or a home of the machine that runs the test.
pub fn ctl() -> Result<Launch> {
    let launch = Launch::new(bins::ctl()?).env("HOME", "/nonexistent");
    Ok(launch.env("VIRTFLEET_SERVER", "").env("KUBECONFIG", ""))
}

/// Address in [`own_network`] that is not loopback: an API server refuses loopback as an endpoint.
/// It is one of those for documentation (RFC 5737).
const OWN_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
/// Timeout of a command that configures the network.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(20);

/// Moves this thread, and all programs and threads that it starts from now on, into a new network
/// namespace, which ends with them. Returns its address. Needs root.
pub fn own_network() -> Result<Ipv4Addr> {
    unshare(CloneFlags::CLONE_NEWNET).context("a network namespace (needs root)")?;
    let address = format!("{OWN_ADDRESS}/32");
    for arguments in [
        &["link", "set", "lo", "up"][..],
        &["address", "add", &address, "dev", "lo"],
    ] {
        Launch::new("ip").args(arguments).text(NETWORK_TIMEOUT)?;
    }
    Ok(OWN_ADDRESS)
}

/// Path of a kubeconfig, written into `folder`.
pub fn write_kubeconfig(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text)?;
    Ok(path)
}

/// Whether a text has a name as a whole word: `infra-02` is not in the pseudonym `infra-02d4ea34`.
pub fn has_name(text: &str, name: &str) -> bool {
    let in_word = |next: Option<char>| next.is_some_and(|next| next.is_ascii_alphanumeric());
    text.match_indices(name).any(|(at, _)| {
        !in_word(text[..at].chars().next_back()) && !in_word(text[at + name.len()..].chars().next())
    })
}
