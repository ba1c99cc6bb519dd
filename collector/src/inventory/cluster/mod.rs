//! Live clusters as the inventory: the infra cluster by the settings, user clusters by its
//! `UserCluster` objects.
//!
//! ```text
//! API server ─ reflector (list, watch) ─ object (reduced) ─▶ resource_cache ─▶ events
//!                                                            └▶ status_registry (readiness, findings, metrics)
//! UserCluster ─▶ user_cluster: secrets ─ connect ─▶ clients ─▶ reflector of its Nodes; Tenants (for writers)
//! ```
//! - A failing watch changes no known object. Objects are removed only by a complete list or a
//!   deletion.
//! - An open watch is no proof that an API server works: `probe` asks each one every ten seconds.
//! - `Synced` is emitted when every watch of the infra cluster has listed completely once. Each
//!   user cluster has its own task: none waits for another, and none delays readiness.
//! - A user cluster's API server is not trusted: its addresses, its responses and the memory for
//!   its objects are limited (`connect`, `reflector`, `resource_cache`). A cluster over a limit is
//!   Failed; other clusters are not affected.
//! - An object that cannot be read is named in a finding, and its last valid version is used.

mod connect;
mod failure;
mod infra_watch;
mod kinds;
mod metrics;
mod mla;
#[cfg(test)]
pub(crate) mod node_events;
mod object;
mod probe;
mod reflector;
mod resource_cache;
mod secrets;
mod status_registry;
#[cfg(test)]
mod tests;
mod user_cluster;
mod user_cluster_watch;

use std::sync::Arc;

use anyhow::Context as _;
use ipnet::IpNet;
use kube::Api;
use tokio::{
    sync::{mpsc, watch as channel},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::facts::InventoryEvent;
use virtfleet_wire::{finding::Finding, ids::Namespace};

pub use self::metrics::WatchMetrics;
pub(crate) use self::{connect::check_server, failure::explain};
use self::{
    connect::{ClusterClients, ConnectionPolicy, follow_endpoints, follow_services},
    infra_watch::InfraWatch,
    kinds::Kind,
    mla::MlaFollowers,
    object::Object,
    probe::{ProbeLimits, ProbeParts, ServerProbe, follow_server},
    reflector::Reflector,
    resource_cache::ResourceCache,
    secrets::Secrets,
    status_registry::{StatusRegistry, WatchId},
    user_cluster_watch::{UserClusterContext, UserClusterWatch},
};
use crate::{
    ca::SecretClients, config::ClusterInventory, dial_guard::InfraApiServer, mla::settings::StreamRegistry,
    tenants::Tenants,
};

/// A client of the infra cluster. Sends no request yet.
///
/// # Errors
/// The kubeconfig, the service account or a file that they name cannot be used.
pub(crate) async fn client(settings: &ClusterInventory) -> anyhow::Result<kube::Client> {
    let rules = settings.user_clusters.dial_rules(None);
    let (clients, _) = connect::infra(settings, rules).await?;
    Ok(clients.request_client)
}

/// The infra cluster with clients, not watched yet.
pub struct Inventory {
    clients: ClusterClients,
    policy: ConnectionPolicy,
    max_nodes: usize,
    namespaces: Vec<Namespace>,
    /// Whether the settings have no service networks.
    asks_for_services: bool,
}

impl std::fmt::Debug for Inventory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inventory")
            .field("namespaces", &self.namespaces)
            .finish_non_exhaustive()
    }
}

impl Inventory {
    /// Creates the clients of the infra cluster and passes them to `tenants`. Sends no request yet:
    /// an unavailable API server is retried later. `service` are the infra cluster's service
    /// networks in the settings.
    ///
    /// # Errors
    /// The settings or the kubeconfig cannot be used.
    pub async fn new(
        settings: &ClusterInventory,
        service: Option<&[IpNet]>,
        tenants: &Tenants,
    ) -> anyhow::Result<Self> {
        let user_clusters = &settings.user_clusters;
        let (clients, policy) = connect::infra(settings, user_clusters.dial_rules(service)).await?;
        tenants.set_infra(clients.request_client.clone());
        let for_sources = policy.clone();
        tenants.set_connect(Arc::new(move |kubeconfig| {
            let policy = for_sources.clone();
            Box::pin(async move {
                let clients = connect::tenant(&kubeconfig, &policy).await?;
                Ok(clients.request_client)
            })
        }));
        let namespaces = settings.namespaces.iter();
        let namespaces = namespaces
            .map(|name| name.parse().context("inventory.cluster.namespaces"))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            clients,
            policy,
            max_nodes: user_clusters.max_nodes as usize,
            namespaces,
            asks_for_services: service.is_none(),
        })
    }

    pub(crate) fn api_server(&self) -> Arc<InfraApiServer> {
        self.policy.infra()
    }

    pub fn secret_clients(&self) -> SecretClients {
        SecretClients {
            requests: self.clients.request_client.clone(),
            watches: self.clients.watch_client.clone(),
        }
    }

    fn watches(&self) -> Vec<WatchId> {
        let mut ids = Vec::new();
        let id = |kind, namespace| WatchId {
            kind,
            cluster: None,
            namespace,
        };
        for kind in [Kind::Vmi, Kind::Vm, Kind::Move, Kind::Launcher, Kind::Namespace] {
            if self.namespaces.is_empty() {
                ids.push(id(kind, None));
            }
            let each = self.namespaces.iter();
            ids.extend(each.map(|namespace| id(kind, Some(namespace.clone()))));
        }
        ids.extend([Kind::InfraNode, Kind::UserCluster, Kind::Policy].map(|kind| id(kind, None)));
        ids
    }

    fn api(&self, id: &WatchId) -> Api<Object> {
        let client = self.clients.watch_client.clone();
        let resource = id.kind.resource();
        match &id.namespace {
            Some(namespace) if id.kind != Kind::Namespace => {
                Api::namespaced_with(client, namespace.as_str(), &resource)
            }
            _ => Api::all_with(client, &resource),
        }
    }

    /// Watches until `stop` or until the receiver of events is dropped. Sends the complete findings
    /// to `problems` at every change.
    ///
    /// # Errors
    /// A watch panicked, which is a bug. Unavailable API servers and missing rights are findings,
    /// never errors.
    pub async fn watch(
        self,
        events: mpsc::Sender<InventoryEvent>,
        problems: channel::Sender<Vec<Finding>>,
        tenants: Arc<Tenants>,
        streams: Arc<StreamRegistry>,
        metrics: WatchMetrics,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let ids = self.watches();
        let status_registry = Arc::new(StatusRegistry::new(&ids, problems, metrics));
        if events.send(InventoryEvent::Init).await.is_err() {
            return Ok(());
        }
        let mut tasks = JoinSet::new();
        if self.asks_for_services {
            let reflector = follow_services(
                self.clients.request_client.clone(),
                self.policy.clone(),
                events.clone(),
            );
            let Some(reflector) = stop.run_until_cancelled(reflector).await else {
                return Ok(());
            };
            tasks.spawn(async {
                reflector.await;
                None
            });
        }
        let endpoints = follow_endpoints(self.clients.request_client.clone(), self.policy.clone());
        tasks.spawn(async {
            endpoints.await;
            None
        });
        let (renew, renewals) = channel::channel(0);
        let probe = ServerProbe::new(ProbeParts {
            client: self.clients.request_client.clone(),
            cluster: None,
            max_leases: usize::MAX,
            limits: ProbeLimits::INFRA,
            events: events.clone(),
            registry: Arc::clone(&status_registry),
        });
        tasks.spawn(follow_server(probe, Arc::clone(&status_registry), renew));
        for id in ids {
            let reflector = Reflector::new(self.api(&id)).labelled(id.kind.labels());
            let infra = InfraWatch {
                reflector: reflector.with_fields(id.kind.fields(id.namespace.as_ref())),
                cache: ResourceCache::new(id.kind, None),
                id,
                registry: Arc::clone(&status_registry),
                events: events.clone(),
                renewals: renewals.clone(),
            };
            if infra.id.kind == Kind::UserCluster {
                let secrets = Secrets::new(self.clients.watch_client.clone());
                let mla = MlaFollowers::new(secrets.clone(), Arc::clone(&streams), Arc::clone(&tenants));
                let shared = UserClusterContext {
                    secrets,
                    policy: self.policy.clone(),
                    max_nodes: self.max_nodes,
                    namespaces: self.namespaces.clone(),
                };
                tasks.spawn(UserClusterWatch::new(infra, shared, mla, Arc::clone(&tenants)).run());
            } else {
                tasks.spawn(infra.run());
            }
        }
        // Dropping the set stops the tasks.
        match stop.run_until_cancelled(tasks.join_next()).await {
            Some(Some(Err(error))) => Err(error).context("a watch panicked"),
            _ => Ok(()),
        }
    }
}
