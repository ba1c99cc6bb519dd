//! Live clusters as the inventory: the infra cluster by the settings, user clusters by its `UserCluster` objects.
//!
//! ```text
//! API server ─ follow (list, watch, again) ─ object (narrowed) ─▶ keeper (what is known, what is gone) ─▶ events
//!                                                                   └▶ board (readiness, findings, metrics)
//! UserCluster ─▶ tenant: secrets ─ connect ─▶ clients ─▶ follow its Nodes; Tenants (for those who write)
//! ```
//! - A watch that fails changes nothing that is known. Only a list that came to its end says that something is gone.
//! - `Synced` comes when every watch of the infra cluster has listed completely once. User clusters come and go on their own,
//!   each in a task of its own: none waits for another, and none holds up readiness.
//! - A user cluster's API server is not trusted: where it may be, how much it may say and how much of it is kept have limits
//!   (`connect`, `follow`, `keeper`). Beyond these the cluster is Failed, and no other notices.
//! - An object that cannot be read is named in a finding, and its last good state stays.

mod board;
mod clusters;
mod connect;
mod failure;
mod follow;
mod keeper;
mod kinds;
mod metrics;
mod object;
mod secrets;
mod tenant;
#[cfg(test)]
mod tests;

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
use self::{
    board::{Board, WatchId},
    clusters::{Clusters, Shared},
    connect::{Clients, Gate, follow_endpoints, follow_services},
    follow::{Follower, Said},
    keeper::Keeper,
    kinds::Kind,
    object::Object,
    secrets::Secrets,
};
use crate::{config::ClusterInventory, tenants::Tenants};

/// A client of the infra cluster, for questions. Nothing is asked yet.
///
/// # Errors
/// The kubeconfig, the service account or a file that they name cannot be used.
pub(crate) async fn client(settings: &ClusterInventory) -> anyhow::Result<kube::Client> {
    let rules = settings.user_clusters.dial_rules(None);
    let (clients, _) = connect::infra(settings, rules).await?;
    Ok(clients.asking)
}

/// The infra cluster, connected to and not yet watched.
pub struct Inventory {
    clients: Clients,
    gate: Gate,
    max_nodes: usize,
    namespaces: Vec<Namespace>,
    /// The settings name no service networks.
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
    /// Makes the clients of the infra cluster, and tells `tenants`. Nothing is asked yet: an API server that is away is waited
    /// for. `service` are the infra cluster's service networks as the settings have them. Errors: the settings or the kubeconfig cannot be used.
    pub async fn new(
        settings: &ClusterInventory,
        service: Option<&[IpNet]>,
        tenants: &Tenants,
    ) -> anyhow::Result<Self> {
        let user_clusters = &settings.user_clusters;
        let (clients, gate) = connect::infra(settings, user_clusters.dial_rules(service)).await?;
        tenants.set_infra(clients.asking.clone());
        let namespaces = settings.namespaces.iter();
        let namespaces = namespaces
            .map(|name| name.parse().context("inventory.cluster.namespaces"))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            clients,
            gate,
            max_nodes: user_clusters.max_nodes as usize,
            namespaces,
            asks_for_services: service.is_none(),
        })
    }

    fn watches(&self) -> Vec<WatchId> {
        let mut ids = Vec::new();
        let id = |kind, namespace| WatchId {
            kind,
            cluster: None,
            namespace,
        };
        for kind in [Kind::Vmi, Kind::Vm, Kind::Move, Kind::Launcher] {
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
        let client = self.clients.watching.clone();
        let resource = id.kind.resource();
        match &id.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace.as_str(), &resource),
            None => Api::all_with(client, &resource),
        }
    }

    /// Watches until `stop` or until nobody takes the events. What is wrong goes to `problems`, whole each time.
    ///
    /// Errors: a watch panicked, a bug. API servers that are away, forbid or forget are findings, never errors.
    pub async fn watch(
        self,
        events: mpsc::Sender<InventoryEvent>,
        problems: channel::Sender<Vec<Finding>>,
        tenants: Arc<Tenants>,
        metrics: WatchMetrics,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let ids = self.watches();
        let board = Arc::new(Board::new(&ids, problems, metrics));
        if events.send(InventoryEvent::Init).await.is_err() {
            return Ok(());
        }
        let mut tasks = JoinSet::new();
        if self.asks_for_services {
            let follow = follow_services(self.clients.asking.clone(), self.gate.clone(), events.clone());
            let Some(follow) = stop.run_until_cancelled(follow).await else {
                return Ok(());
            };
            tasks.spawn(async {
                follow.await;
                None
            });
        }
        let endpoints = follow_endpoints(self.clients.asking.clone(), self.gate.clone());
        tasks.spawn(async {
            endpoints.await;
            None
        });
        for id in ids {
            let infra = Watch {
                follower: Follower::new(self.api(&id)).labelled(id.kind.labels()),
                keeper: Keeper::new(id.kind, None),
                id,
                board: Arc::clone(&board),
                events: events.clone(),
            };
            if infra.id.kind == Kind::UserCluster {
                let shared = Shared {
                    secrets: Secrets::new(self.clients.watching.clone()),
                    gate: self.gate.clone(),
                    max_nodes: self.max_nodes,
                    namespaces: self.namespaces.clone(),
                };
                tasks.spawn(Clusters::new(infra, shared, Arc::clone(&tenants)).run());
            } else {
                tasks.spawn(infra.run());
            }
        }
        // Dropped with the set, the tasks end.
        match stop.run_until_cancelled(tasks.join_next()).await {
            Some(Some(Err(error))) => Err(error).context("a watch has failed inside the collector"),
            _ => Ok(()),
        }
    }
}

/// One watch of the infra cluster.
struct Watch {
    id: WatchId,
    follower: Follower<Object>,
    keeper: Keeper,
    board: Arc<Board>,
    events: mpsc::Sender<InventoryEvent>,
}

impl Watch {
    async fn run(mut self) -> Option<()> {
        loop {
            let said = self.follower.next().await;
            for event in self.keeper.take(&said) {
                self.events.send(event).await.ok()?;
            }
            self.report(&said).await?;
        }
    }

    /// Tells the board; says that the inventory is complete when this was the last that was missing.
    async fn report(&mut self, said: &Said<Object>) -> Option<()> {
        let complete = match said {
            Said::Begun => {
                self.board.begun(&self.id);
                false
            }
            Said::Complete => self.board.listed(&self.id),
            Said::Failed(failure) => self.board.failed(&self.id, failure),
            Said::Fine => {
                self.board.fine(&self.id);
                false
            }
            _ => false,
        };
        if !matches!(said, Said::Listed(_)) {
            self.board
                .knows(&self.id, self.keeper.len(), self.keeper.unreadable());
        }
        if complete {
            tracing::info!("every watch of the infra cluster has listed completely");
            self.events.send(InventoryEvent::Synced).await.ok()?;
        }
        Some(())
    }
}
