//! ClusterClients for API servers: of the infra cluster by the settings, of a user cluster by its
//! kubeconfig.
//!
//! ```text
//! kubeconfig ─ kubeconfig::read ─▶ kube's client ─ limit ─▶ hyper ─ TLS ─ dial (address checked) ─▶ API server
//! ```
//! The infra cluster is trusted. A user cluster is not: its admins may choose which server its
//! kubeconfig names.

mod endpoints;
mod kubeconfig;
mod limit;
mod services;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use hyper_timeout::TimeoutConnector;
use hyper_util::{client::legacy, rt::TokioExecutor};
use kube::{
    Client, Config,
    client::ConfigExt as _,
    config::{KubeConfigOptions, Kubeconfig},
};
use tower::ServiceBuilder;
use virtfleet_collector_core::dial::DialRules;

pub(crate) use self::kubeconfig::check_server;
use self::limit::{Budget, LimitedClient};
pub(super) use self::{
    endpoints::follow_endpoints,
    kubeconfig::MAX_KUBECONFIG,
    limit::{LimitError, meaning},
    services::follow_services,
};
use crate::{
    config::ClusterInventory,
    dial_guard::{DialGuard, GuardedConnector, InfraApiServer},
};

/// Timeout of a connection including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout while reading a response that is not a watch.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum bytes of a response head.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Two clients of one API server.
#[derive(Clone)]
pub(super) struct ClusterClients {
    /// For watches, which may be silent for minutes; the caller limits each wait.
    pub(super) watch_client: Client,
    /// For all other requests, with a read timeout.
    pub(super) request_client: Client,
}

/// Policy for connections to user clusters; clones share it.
#[derive(Debug, Clone)]
pub(super) struct ConnectionPolicy {
    guard: Arc<DialGuard>,
    infra: Arc<InfraApiServer>,
    budget: Arc<Budget>,
}

impl ConnectionPolicy {
    /// A policy with the dial rules `rules`, which also forbids the addresses of the infra API
    /// server `infra`.
    fn new(rules: DialRules, infra: &http::Uri) -> Self {
        let infra = Arc::new(InfraApiServer::new(infra));
        let guard = DialGuard::new(
            rules,
            Some(Arc::clone(&infra)),
            "inventory.cluster.userClusters.allowCIDRs",
        );
        Self {
            guard: Arc::new(guard),
            infra,
            budget: Arc::default(),
        }
    }

    pub(super) fn infra(&self) -> Arc<InfraApiServer> {
        Arc::clone(&self.infra)
    }
}

/// ClusterClients of the infra cluster, and the policy for user clusters with the dial rules
/// `rules`. kube itself rereads a token file and the service account's CA every minute.
pub(super) async fn infra(
    settings: &ClusterInventory,
    rules: DialRules,
) -> anyhow::Result<(ClusterClients, ConnectionPolicy)> {
    install_crypto();
    let mut config = match &settings.kubeconfig {
        Some(file) => {
            let text = Kubeconfig::read_from(file)
                .with_context(|| format!("inventory.cluster.kubeconfig: cannot use {file}"))?;
            let options = KubeConfigOptions {
                context: settings.context.clone(),
                ..KubeConfigOptions::default()
            };
            Config::from_custom_kubeconfig(text, &options)
                .await
                .with_context(|| format!("inventory.cluster.kubeconfig: cannot use {file}"))?
        }
        None => Config::incluster().context(
            "inventory.cluster: no service account found; run in a pod, or set inventory.cluster.kubeconfig",
        )?,
    };
    let policy = ConnectionPolicy::new(rules, &config.cluster_url);
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = None;
    let clients = async {
        let watch_client = Client::try_from(config.clone())?;
        config.read_timeout = Some(READ_TIMEOUT);
        config.reset_reader_on_write = true;
        let request_client = Client::try_from(config)?;
        Ok::<_, kube::Error>(ClusterClients {
            watch_client,
            request_client,
        })
    };
    let clients = clients
        .await
        .context("inventory.cluster: cannot create a client")?;
    Ok((clients, policy))
}

/// ClusterClients of a user cluster.
///
/// # Errors
/// Why its kubeconfig cannot be used, without any secret part of it.
pub(super) async fn tenant(kubeconfig: &[u8], policy: &ConnectionPolicy) -> Result<ClusterClients, String> {
    install_crypto();
    let kubeconfig = kubeconfig::read(kubeconfig, &policy.guard)?;
    let unusable = |error: &dyn std::fmt::Display| format!("the kubeconfig cannot be used: {error}");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| unusable(&error))?;
    let client = |read| limited(&config, read, policy).map_err(|error| unusable(&error));
    Ok(ClusterClients {
        watch_client: client(None)?,
        request_client: client(Some(READ_TIMEOUT))?,
    })
}

/// A client with the limits for user clusters. kube's own stack supports neither checked addresses
/// nor limits on responses; it also retries, which the callers here do themselves.
fn limited(
    config: &Config,
    read: Option<Duration>,
    policy: &ConnectionPolicy,
) -> Result<Client, kube::Error> {
    let connector = GuardedConnector(Arc::clone(&policy.guard));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_read_timeout(read);
    connector.set_reset_reader_on_write(true);
    let hyper = legacy::Client::builder(TokioExecutor::new())
        .http1_max_buf_size(MAX_HEAD_BYTES)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(LimitedClient::new(hyper, Arc::clone(&policy.budget)));
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// Two crates may each link a crypto provider; rustls then does not choose one by itself.
fn install_crypto() {
    // Fails only if a provider is already installed.
    rustls::crypto::ring::default_provider().install_default().ok();
}
