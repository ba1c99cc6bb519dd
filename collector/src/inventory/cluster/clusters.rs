//! The watch of `UserCluster`s, which starts and ends the tasks of user clusters.

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use virtfleet_collector_core::{
    facts::{Fact, FactKey, InventoryEvent},
    findings,
};
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, Namespace},
};

use super::{
    Watch, connect::Gate, follow::Said, keeper::Keeper, kinds::Kind, object::Object, secrets::Secrets,
    tenant::Tenant,
};
use crate::{
    inventory::read::{SecretRef, kubeconfig_secret},
    tenants::Tenants,
};

/// See the module.
pub(super) struct Clusters {
    watch: Watch,
    shared: Shared,
    tenants: Arc<Tenants>,
    running: BTreeMap<ClusterName, Running>,
}

/// What the tasks of all user clusters share.
pub(super) struct Shared {
    pub(super) secrets: Secrets,
    pub(super) gate: Gate,
    /// How many Nodes each may have.
    pub(super) max_nodes: usize,
    /// The namespaces whose VMs are watched; empty: all.
    pub(super) namespaces: Vec<Namespace>,
}

struct Running {
    secret: Option<SecretRef>,
    /// Dropped, it stops the task, too.
    stop: DropGuard,
    task: JoinHandle<Keeper>,
}

impl Clusters {
    pub(super) fn new(watch: Watch, shared: Shared, tenants: Arc<Tenants>) -> Self {
        Self {
            watch,
            shared,
            tenants,
            running: BTreeMap::new(),
        }
    }

    /// Follows until nobody takes events any more.
    pub(super) async fn run(mut self) -> Option<()> {
        loop {
            let said = self.watch.follower.next().await;
            for event in self.watch.keeper.take(&said) {
                match &event {
                    InventoryEvent::Apply(Fact::UserCluster(cluster)) => {
                        let (name, suspend) = (cluster.name.clone(), cluster.suspend);
                        self.note_namespace(&name, &cluster.namespace.clone());
                        self.send(event).await?;
                        if let Said::Listed(object) | Said::Applied(object) = &said {
                            self.start(&name, suspend, object).await;
                        }
                    }
                    InventoryEvent::Delete(FactKey::UserCluster(name)) => {
                        let name = name.clone();
                        // Its Nodes first: a Node of no cluster would be a finding.
                        for gone in self.end(&name).await.drain() {
                            self.send(gone).await?;
                        }
                        self.tenants.remove(&name);
                        self.watch.board.remove(&Tenant::id(&name));
                        self.send(event).await?;
                    }
                    _ => self.send(event).await?,
                }
            }
            self.watch.report(&said).await?;
        }
    }

    async fn send(&mut self, event: InventoryEvent) -> Option<()> {
        self.watch.events.send(event).await.ok()
    }

    /// A user cluster in a namespace that is not watched has no VMs here, whatever it selects.
    fn note_namespace(&self, name: &ClusterName, namespace: &Namespace) {
        let watched = &self.shared.namespaces;
        let is_watched = watched.is_empty() || watched.contains(namespace);
        let note = (!is_watched).then(|| {
            format!(
                "spec.vmis.namespace is {namespace}, which is not among inventory.cluster.namespaces: none of its VMs is seen"
            )
        });
        let found = note.as_ref().map(|note| {
            let message = format!("user cluster {name}: {note}");
            let subject = ("UserCluster", name.as_str());
            let found = Finding::new(
                findings::USER_CLUSTER_UNWATCHED,
                Severity::Warning,
                subject,
                "NamespaceNotWatched",
                message,
            );
            found.with("cluster", name).with("namespace", namespace).remedy(format!(
                "add {namespace} to inventory.cluster.namespaces, with the Role of packaging/collector/kubernetes/namespaced, or \
                 correct spec.vmis.namespace"
            ))
        });
        self.watch.board.unwatched(name, found);
        self.tenants.update(name, |tenant| {
            let changed = tenant.note != note;
            tenant.note = note;
            changed
        });
    }

    async fn start(&mut self, name: &ClusterName, suspend: bool, object: &Object) {
        let (uid, generation) = (object.uid(), object.generation());
        self.tenants.update(name, |tenant| {
            let changed = (&tenant.uid, tenant.generation, tenant.suspend) != (&uid, generation, suspend);
            (tenant.uid, tenant.generation, tenant.suspend) = (uid, generation, suspend);
            changed
        });
        // A fault in it would have made the object unreadable.
        let secret = kubeconfig_secret(&object.field()).unwrap_or(None);
        let running = self.running.get(name);
        if running.is_some_and(|running| running.secret == secret && !running.task.is_finished()) {
            return;
        }
        let keeper = self.end(name).await;
        let stop = CancellationToken::new();
        let tenant = Tenant {
            name: name.clone(),
            secret: secret.clone(),
            secrets: self.shared.secrets.clone(),
            gate: self.shared.gate.clone(),
            max_nodes: self.shared.max_nodes,
            tenants: Arc::clone(&self.tenants),
            board: Arc::clone(&self.watch.board),
            events: self.watch.events.clone(),
            keeper,
        };
        let task = tokio::spawn(tenant.run(stop.clone()));
        let stop = stop.drop_guard();
        self.running.insert(name.clone(), Running { secret, stop, task });
    }

    /// Ends the task, when there is one, and takes what it knows.
    async fn end(&mut self, name: &ClusterName) -> Keeper {
        let new = || Keeper::new(Kind::UserNode, Some(name.clone()));
        let Some(running) = self.running.remove(name) else {
            return new();
        };
        drop(running.stop);
        running.task.await.unwrap_or_else(|error| {
            tracing::error!(cluster = %name, %error, "the watch of a user cluster has failed inside the collector");
            new()
        })
    }
}
