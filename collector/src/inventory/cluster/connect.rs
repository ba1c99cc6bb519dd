//! Clients of API servers: of the infra cluster by the settings, of a user cluster by its kubeconfig.
//!
//! ```text
//! kubeconfig ─ kubeconfig::read ─▶ kube's client ─ limit ─▶ hyper ─ TLS ─ dial (address checked) ─▶ API server
//! ```
//! The infra cluster is trusted. A user cluster is not: its admins may choose what answers behind its kubeconfig.

mod dial;
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

use self::{
    dial::{DialGuard, GuardedConnector},
    limit::{Budget, LimitedClient},
};
pub(super) use self::{
    endpoints::follow_endpoints,
    kubeconfig::MAX_KUBECONFIG,
    limit::{LimitError, meaning},
    services::follow_services,
};
use crate::config::ClusterInventory;

/// How long a connection may take until TLS is up.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer that is not a watch may keep still.
const READ: Duration = Duration::from_secs(15);
/// Maximum bytes of an answer's head.
const MAX_HEAD: usize = 64 << 10;

/// Two clients of one API server.
#[derive(Clone)]
pub(super) struct Clients {
    /// For watches, which are silent for minutes; whoever uses it limits each wait.
    pub(super) watching: Client,
    /// For everything else: an answer that does not come ends the request.
    pub(super) asking: Client,
}

/// What all clients of user clusters share.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    guard: Arc<DialGuard>,
    budget: Arc<Budget>,
}

impl Gate {
    /// `rules` say which addresses are open, beside those of the infra API server that `infra` names.
    fn new(rules: DialRules, infra: &http::Uri) -> Self {
        Self {
            guard: Arc::new(DialGuard::new(rules, infra)),
            budget: Arc::default(),
        }
    }
}

/// Clients of the infra cluster, and what those of user clusters share. A token file is read again every minute by kube itself,
/// and so is the service account's CA. `rules` say to which addresses user clusters are connected.
pub(super) async fn infra(settings: &ClusterInventory, rules: DialRules) -> anyhow::Result<(Clients, Gate)> {
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
            "inventory.cluster: there is no service account here; run in a pod, or set inventory.cluster.kubeconfig",
        )?,
    };
    let gate = Gate::new(rules, &config.cluster_url);
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = None;
    let clients = async {
        let watching = Client::try_from(config.clone())?;
        config.read_timeout = Some(READ);
        config.reset_reader_on_write = true;
        let asking = Client::try_from(config)?;
        Ok::<_, kube::Error>(Clients { watching, asking })
    };
    let clients = clients.await.context("inventory.cluster: cannot make a client")?;
    Ok((clients, gate))
}

/// Clients of a user cluster.
///
/// # Errors
/// What is wrong with its kubeconfig, never any part of it that is secret.
pub(super) async fn tenant(kubeconfig: &[u8], gate: &Gate) -> Result<Clients, String> {
    install_crypto();
    let kubeconfig = kubeconfig::read(kubeconfig, &gate.guard)?;
    let unusable = |error: &dyn std::fmt::Display| format!("the kubeconfig cannot be used: {error}");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| unusable(&error))?;
    let client = |read| limited(&config, read, gate).map_err(|error| unusable(&error));
    Ok(Clients {
        watching: client(None)?,
        asking: client(Some(READ))?,
    })
}

/// A client that connects and reads by the rules for user clusters. kube's own stack has no place for either, and retries, which
/// the callers here do themselves.
fn limited(config: &Config, read: Option<Duration>, gate: &Gate) -> Result<Client, kube::Error> {
    let connector = GuardedConnector(Arc::clone(&gate.guard));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_read_timeout(read);
    connector.set_reset_reader_on_write(true);
    let hyper = legacy::Client::builder(TokioExecutor::new())
        .http1_max_buf_size(MAX_HEAD)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(LimitedClient::new(hyper, Arc::clone(&gate.budget)));
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// Two crates may each bring a provider, and then rustls does not choose by itself.
fn install_crypto() {
    // Refused only when there is one already.
    rustls::crypto::ring::default_provider().install_default().ok();
}
