//! Task of one user cluster: follows its kubeconfig Secret, and watches its Nodes with each
//! kubeconfig.
//!
//! Known Nodes are kept when the kubeconfig changes. They are removed only by a complete list
//! without them, or with the `UserCluster`.

use std::sync::Arc;

use kube::Api;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::{facts::InventoryEvent, findings};
use virtfleet_runtime::digest::Sha256;
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::ClusterName,
};

use super::{
    connect::{self, ClusterClients, ConnectionPolicy},
    failure::WatchFailure,
    kinds::Kind,
    object::Object,
    reflector::{Reflector, ReflectorEvent},
    resource_cache::ResourceCache,
    secrets::{KubeconfigLookup, NamespaceSecrets, Secrets},
    status_registry::{StatusRegistry, WatchId},
};
use crate::{
    inventory::read::SecretRef,
    tenants::{TenantClient, TenantState, Tenants},
};

/// Task of one user cluster.
pub(super) struct UserClusterTask {
    pub(super) name: ClusterName,
    pub(super) secret: Option<SecretRef>,
    /// Secrets of the infra cluster.
    pub(super) secrets: Secrets,
    pub(super) policy: ConnectionPolicy,
    /// Maximum Nodes.
    pub(super) max_nodes: usize,
    pub(super) tenants: Arc<Tenants>,
    pub(super) registry: Arc<StatusRegistry>,
    pub(super) events: mpsc::Sender<InventoryEvent>,
    pub(super) cache: ResourceCache,
}

impl UserClusterTask {
    pub(super) fn id(name: &ClusterName) -> WatchId {
        WatchId {
            kind: Kind::UserNode,
            cluster: Some(name.clone()),
            namespace: None,
        }
    }

    /// Runs until `stop`, and returns the cache of Nodes, which matches the events sent.
    pub(super) async fn run(mut self, stop: CancellationToken) -> ResourceCache {
        let Some(secret) = self.secret.clone() else {
            let why = "spec.kubeconfig is not set";
            without_client(
                &self.tenants,
                &self.registry,
                &self.name,
                TenantState::Pending,
                why,
            );
            stop.cancelled().await;
            return self.cache;
        };
        let (client_sender, clients) = watch::channel(None);
        let about = (&self.name, &*self.tenants, &*self.registry);
        let namespace_secrets = self.secrets.watch_namespace(&secret.namespace);
        let secrets = follow_secret(namespace_secrets, &self.policy, secret, about, client_sender);
        let mut nodes = NodeWatch {
            name: &self.name,
            tenants: &self.tenants,
            registry: &self.registry,
            events: &self.events,
            cache: &mut self.cache,
            max_nodes: self.max_nodes,
        };
        tokio::select! {
            () = secrets => {}
            // Stops between two events, so that none is sent in part.
            _ = nodes.follow(clients, &stop) => {}
        }
        self.cache
    }
}

fn without_client(
    tenants: &Tenants,
    registry: &StatusRegistry,
    name: &ClusterName,
    state: TenantState,
    why: &str,
) {
    let found = finding(name, &state, why);
    tenants.set_client(name, None, state);
    registry.cluster(name, Some(found));
}

fn finding(name: &ClusterName, state: &TenantState, why: &str) -> Finding {
    let message = format!("user cluster {name}: {why}");
    let subject = ("UserCluster", name.as_str());
    let (id, severity, reason, remedy) = match state {
        TenantState::Pending => (
            findings::USER_CLUSTER_PENDING,
            Severity::Info,
            "NoKubeconfig",
            "set spec.kubeconfig and create the Secret; until then nothing is written there",
        ),
        TenantState::Failed(_) => (
            findings::USER_CLUSTER_FAILED,
            Severity::Warning,
            "Failed",
            "check which server answers there and why it sends so much; its last known Nodes are kept, and the collector retries every 30 s",
        ),
        _ => (
            findings::USER_CLUSTER_UNREACHABLE,
            Severity::Warning,
            "Unreachable",
            "check its API server and its kubeconfig; its last known Nodes are kept",
        ),
    };
    let found = Finding::new(id, severity, subject, reason, message).remedy(remedy);
    found.with("cluster", name)
}

/// Follows the kubeconfig and sends each version.
async fn follow_secret(
    mut namespace_secrets: watch::Receiver<NamespaceSecrets>,
    policy: &ConnectionPolicy,
    at: SecretRef,
    (name, tenants, registry): (&ClusterName, &Tenants, &StatusRegistry),
    client_sender: watch::Sender<Option<ClusterClients>>,
) {
    let place = format!("Secret {}/{}", at.namespace, at.name);
    let none = |state: TenantState, why: &str| {
        client_sender.send_replace(None);
        without_client(tenants, registry, name, state, why);
    };
    let mut last = KubeconfigLookup::Waiting;
    loop {
        let found = namespace_secrets.borrow_and_update().find(&at);
        // Changes of other Secrets of the namespace are ignored.
        if found != last {
            match &found {
                KubeconfigLookup::Waiting => {}
                KubeconfigLookup::Absent => none(TenantState::Pending, &format!("{place} does not exist")),
                KubeconfigLookup::NoKey => {
                    let why = format!("{place}: the Secret has no key {:?}", at.key);
                    none(TenantState::Unreachable(why.clone()), &why);
                }
                KubeconfigLookup::Failed(failure) => {
                    let why = format!("{place} cannot be read: {}", failure.of_secrets(&at.namespace));
                    none(TenantState::Unreachable(why.clone()), &why);
                }
                KubeconfigLookup::Kubeconfig(bytes) => match connect::tenant(bytes, policy).await {
                    Ok(clients) => {
                        let client = TenantClient {
                            client: clients.request_client.clone(),
                            fingerprint: Sha256::fingerprint(bytes),
                        };
                        tenants.set_client(name, Some(client), TenantState::Connecting);
                        registry.cluster(name, None);
                        client_sender.send_replace(Some(clients));
                    }
                    Err(problem) => {
                        let why = format!("{place}: {problem}");
                        none(TenantState::Unreachable(why.clone()), &why);
                    }
                },
            }
            last = found;
        }
        if namespace_secrets.changed().await.is_err() {
            return;
        }
    }
}

/// Watches the Nodes with the present kubeconfig.
struct NodeWatch<'a> {
    name: &'a ClusterName,
    tenants: &'a Tenants,
    registry: &'a StatusRegistry,
    events: &'a mpsc::Sender<InventoryEvent>,
    cache: &'a mut ResourceCache,
    /// Maximum Nodes.
    max_nodes: usize,
}

impl NodeWatch<'_> {
    /// Returns on `stop`, or when the receiver of events or the sender of kubeconfigs is dropped.
    async fn follow(
        &mut self,
        mut clients: watch::Receiver<Option<ClusterClients>>,
        stop: &CancellationToken,
    ) -> Option<()> {
        loop {
            let now = clients.borrow_and_update().clone();
            match now {
                None => stop.run_until_cancelled(clients.changed()).await?.ok()?,
                Some(now) => self.follow_with(now, &mut clients, stop).await?,
            }
        }
    }

    /// Returns when there is another kubeconfig.
    async fn follow_with(
        &mut self,
        now: ClusterClients,
        clients: &mut watch::Receiver<Option<ClusterClients>>,
        stop: &CancellationToken,
    ) -> Option<()> {
        let id = UserClusterTask::id(self.name);
        let api = Api::all_with(now.watch_client, &Kind::UserNode.resource());
        let mut reflector: Reflector<Object> = Reflector::tenant(api, self.max_nodes);
        let mut listed = false;
        loop {
            let mut watch_event = tokio::select! {
                () = stop.cancelled() => return None,
                changed = clients.changed() => return changed.ok(),
                event = reflector.next() => event,
            };
            if let Some(why) = self.cache.exceeds(&watch_event, self.max_nodes) {
                watch_event = ReflectorEvent::Failed(reflector.reject(why));
            }
            for event in self.cache.take(&watch_event) {
                self.events.send(event).await.ok()?;
            }
            match &watch_event {
                ReflectorEvent::ListStarted => self.registry.list_started(&id),
                ReflectorEvent::Complete => {
                    listed = true;
                    self.registry.listed(&id);
                }
                ReflectorEvent::Watching => self.registry.works(&id),
                ReflectorEvent::Failed(failure) => {
                    self.registry.failed(&id, failure);
                    if failure.over_limit {
                        self.failed(failure);
                    } else if !listed || failure.is_definite() || failure.count > 1 {
                        self.unreachable(failure);
                    }
                }
                _ => {}
            }
            if matches!(&watch_event, ReflectorEvent::Failed(failure) if failure.over_limit) {
                listed = false;
            }
            if matches!(watch_event, ReflectorEvent::Complete | ReflectorEvent::Watching) && listed {
                self.tenants.set_state(self.name, TenantState::Ready);
                self.registry.cluster(self.name, None);
            }
            if !matches!(watch_event, ReflectorEvent::Listed(_)) {
                self.registry
                    .set_objects(&id, self.cache.len(), self.cache.unreadable());
            }
        }
    }

    fn failed(&self, failure: &WatchFailure) {
        let why = format!("it exceeds a limit on user clusters: {}", failure.message);
        self.set_state(TenantState::Failed(why.clone()), &why);
    }

    fn unreachable(&self, failure: &WatchFailure) {
        let mut why = format!("its Nodes cannot be watched: {}", failure.message);
        if failure.code == Some(403) {
            why.push_str(
                "; grant the kubeconfig's user the verbs list and watch on nodes with a ClusterRole",
            );
        }
        self.set_state(TenantState::Unreachable(why.clone()), &why);
    }

    fn set_state(&self, state: TenantState, why: &str) {
        self.registry
            .cluster(self.name, Some(finding(self.name, &state, why)));
        self.tenants.set_state(self.name, state);
    }
}
