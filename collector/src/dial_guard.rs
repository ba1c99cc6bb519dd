//! Checks the addresses that tenants name before connecting. Names are resolved here, and the
//! checked address is the one that is dialled, so that a name with changing addresses cannot bypass
//! the check.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, PoisonError, RwLock},
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tower::Service;
use virtfleet_collector_core::dial::{DialRules, Refusal};

use crate::host_port::host_and_port;

/// Timeout per address of a name.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;

/// Addresses of the infra cluster's API server, which no tenant may let the collector dial.
#[derive(Debug)]
pub(crate) struct InfraApiServer {
    /// Host and port under which the collector reaches it.
    named: (String, u16),
    /// Further addresses.
    endpoints: RwLock<Vec<SocketAddr>>,
}

impl InfraApiServer {
    pub(crate) fn new(url: &Uri) -> Self {
        Self {
            named: host_and_port(url),
            endpoints: RwLock::default(),
        }
    }

    /// Replaces its further addresses.
    pub(crate) fn set_endpoints(&self, endpoints: Vec<SocketAddr>) {
        *self.endpoints.write().unwrap_or_else(PoisonError::into_inner) = endpoints;
    }

    /// Whether the address is known to be its, without any name resolution.
    fn has(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        let same = |known: &SocketAddr| (known.ip().to_canonical(), known.port()) == (ip, address.port());
        let endpoints = self.endpoints.read().unwrap_or_else(PoisonError::into_inner);
        let literal = self.named.0.parse::<IpAddr>();
        let literal = literal.map(|ip| SocketAddr::new(ip, self.named.1));
        endpoints.iter().any(same) || literal.is_ok_and(|literal| same(&literal))
    }

    /// The addresses of its name; none if the name has none now.
    async fn resolve(&self) -> Vec<SocketAddr> {
        match lookup_host((self.named.0.as_str(), self.named.1)).await {
            Ok(found) => found.collect(),
            Err(_) => Vec::new(),
        }
    }
}

/// Addresses that may be dialled for tenants: API servers of user clusters, and receivers of their
/// metrics.
#[derive(Debug)]
pub(crate) struct DialGuard {
    rules: RwLock<DialRules>,
    /// None if the inventory is a folder.
    infra: Option<Arc<InfraApiServer>>,
    /// Key of the allowed networks in the settings, for messages.
    setting: &'static str,
}

impl DialGuard {
    /// A guard with the dial rules `rules`, whose networks are in the settings under the key
    /// `setting`. The addresses of `infra` are never allowed.
    pub(crate) fn new(rules: DialRules, infra: Option<Arc<InfraApiServer>>, setting: &'static str) -> Self {
        Self {
            rules: RwLock::new(rules),
            infra,
            setting,
        }
    }

    /// Replaces the infra cluster's service networks. Returns whether they changed.
    pub(crate) fn set_service_networks(&self, networks: Vec<IpNet>) -> bool {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        rules.set_service_networks(networks)
    }

    /// Checks an address, without any name resolution.
    ///
    /// # Errors
    /// Why it is not allowed, and which setting allows it.
    pub(crate) fn check(&self, address: SocketAddr) -> Result<(), String> {
        let ip = address.ip().to_canonical();
        if self.infra.as_ref().is_some_and(|infra| infra.has(address)) {
            return Err(format!("{address} is the infra cluster's own API server"));
        }
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let setting = self.setting;
        match rules.check(ip) {
            Ok(()) => Ok(()),
            Err(Refusal::Special(special)) => Err(format!(
                "{ip} is {special}; only an entry of {setting} inside that range allows it"
            )),
            Err(_) => Err(format!("{ip} is in no network of {setting}")),
        }
    }

    /// The allowed addresses of a URL, and why the others are not allowed.
    async fn resolve(&self, uri: &Uri) -> io::Result<(Vec<SocketAddr>, Vec<String>)> {
        let (host, port) = host_and_port(uri);
        let infra = async {
            match &self.infra {
                Some(infra) => infra.resolve().await,
                None => Vec::new(),
            }
        };
        let (found, infra) = tokio::join!(lookup_host((host.as_str(), port)), infra);
        let (mut open, mut refused) = (Vec::new(), Vec::new());
        for address in found?.take(MAX_ADDRESSES) {
            if infra.contains(&address) {
                refused.push(format!("{address} is the infra cluster's own API server"));
                continue;
            }
            match self.check(address) {
                Ok(()) => open.push(address),
                Err(why) => refused.push(why),
            }
        }
        Ok((open, refused))
    }

    /// Connects to the first allowed address of a URL that accepts the connection.
    ///
    /// # Errors
    /// None does, or none is allowed; the message says why.
    pub(crate) async fn connect(&self, uri: Uri) -> io::Result<TokioIo<TcpStream>> {
        let (open, refused) = self.resolve(&uri).await?;
        let alone = open.len() == 1;
        let mut last = None;
        for address in open {
            let dial = TcpStream::connect(address);
            let dialled = if alone {
                dial.await
            } else {
                let late = |_| Err(io::ErrorKind::TimedOut.into());
                timeout(ADDRESS_TIMEOUT, dial).await.unwrap_or_else(late)
            };
            match dialled {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(TokioIo::new(stream));
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| match refused.as_slice() {
            [] => io::Error::other("its name has no address"),
            refused => io::Error::other(format!("its address may not be dialled: {}", refused.join("; "))),
        }))
    }
}

/// Connects to addresses that its [`DialGuard`] allows.
#[derive(Debug, Clone)]
pub(crate) struct GuardedConnector(pub(crate) Arc<DialGuard>);

impl Service<Uri> for GuardedConnector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let guard = Arc::clone(&self.0);
        Box::pin(async move { guard.connect(uri).await })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::UserClusterSettings;

    const SETTING: &str = "inventory.cluster.userClusters.allowCIDRs";

    /// A guard for an infra API server at this URL, with all networks and these ones allowed.
    fn guard_of(infra: &'static str, more: &[&str]) -> DialGuard {
        let mut settings = UserClusterSettings::default();
        settings
            .allow_cidrs
            .extend(more.iter().map(|net| net.parse::<IpNet>().unwrap()));
        let infra = InfraApiServer::new(&Uri::from_static(infra));
        DialGuard::new(settings.dial_rules(None), Some(Arc::new(infra)), SETTING)
    }

    /// A guard for an infra API server at 198.51.100.7:6443, with further networks allowed.
    pub(crate) fn guard(more: &[&str]) -> DialGuard {
        guard_of("https://198.51.100.7:6443", more)
    }

    #[tokio::test]
    async fn a_name_is_checked_by_its_addresses() {
        let uri = Uri::from_static("https://localhost:1");
        let error = guard(&[]).connect(uri.clone()).await.unwrap_err().to_string();
        assert!(error.contains("loopback") && error.contains(SETTING), "{error}");
        // The infra API server has a name, and the tenant has another name for the same address.
        let open = ["127.0.0.0/8", "::1/128"];
        let refused = guard(&open).connect(uri).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{refused}");
        let infra = guard_of("https://localhost:1", &open);
        let error = infra
            .connect(Uri::from_static("https://127.0.0.1:1"))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("own API server"), "{error}");
    }

    #[test]
    fn every_endpoint_of_the_infra_api_server_is_refused() {
        let guard = guard(&[]);
        let address = "203.0.113.9:6443".parse().unwrap();
        guard.check(address).unwrap();
        guard.infra.as_ref().unwrap().set_endpoints(vec![address]);
        guard.check(address).unwrap_err();
        guard.check("203.0.113.9:443".parse().unwrap()).unwrap();
    }
}
