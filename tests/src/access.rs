//! Access to a collector's API: tokens, and a client that sends them.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use anyhow::{Context as _, Result};
use nix::ifaddrs::getifaddrs;
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

/// A line of a file of static tokens; `rest` has the name and the scopes.
pub fn token_line(token: &str, rest: &str) -> String {
    let mut hash = Sha256::default();
    hash.update(token.as_bytes());
    format!("sha256:{},{rest}\n", hash.hex())
}

/// The certificate of a collector's API: for its address, for its Service, and for [`Api`].
///
/// Writes `api.pem` and `api.key` into `folder`.
pub fn api_certificate(authority: &Authority, folder: &std::path::Path) -> Result<Files> {
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

/// An address of this machine that is not loopback, because an API server refuses loopback as an
/// endpoint. Connections to it stay on this machine.
pub fn own_address() -> Result<Ipv4Addr> {
    let usable = |address: &Ipv4Addr| !address.is_loopback() && !address.is_link_local();
    let addresses = getifaddrs()
        .context("addresses of this machine")?
        .filter_map(|one| {
            let address = one.address?.as_sockaddr_in()?.ip();
            Some(address).filter(usable)
        });
    let mut addresses: Vec<Ipv4Addr> = addresses.collect();
    addresses.retain(|address| crate::ports::free_on(IpAddr::V4(*address)).is_ok());
    let first = addresses.first().copied();
    first.context("this machine has no address but loopback")
}

/// Path of a kubeconfig, written into `folder`.
pub fn write_kubeconfig(folder: &std::path::Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    std::fs::write(&path, text)?;
    Ok(path)
}
