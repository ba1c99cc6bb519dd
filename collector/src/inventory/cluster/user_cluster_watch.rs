//! Watches `UserCluster`s, and starts and stops the tasks of user clusters.

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use virtfleet_collector_core::{
    cluster_source::{HIBERNATES_LABEL, SOURCE_LABEL},
    facts::{Fact, FactKey, InventoryEvent},
    findings,
};
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, Namespace},
};

use super::{
    connect::ConnectionPolicy, infra_watch::InfraWatch, kinds::Kind, mla::MlaFollowers, object::Object,
    reflector::ReflectorEvent, resource_cache::ResourceCache, secrets::Secrets,
    user_cluster::UserClusterTask,
};
use crate::{
    inventory::read::{SecretRef, kubeconfig_secret},
    tenants::Tenants,
};

pub(super) struct UserClusterWatch {
    watch: InfraWatch,
    shared: UserClusterContext,
    mla: MlaFollowers,
    tenants: Arc<Tenants>,
    running: BTreeMap<ClusterName, RunningTask>,
}

/// Context shared by the tasks of all user clusters.
pub(super) struct UserClusterContext {
    pub(super) secrets: Secrets,
    pub(super) policy: ConnectionPolicy,
    /// Maximum Nodes of each cluster.
    pub(super) max_nodes: usize,
    /// The namespaces whose VMs are watched; empty: all.
    pub(super) namespaces: Vec<Namespace>,
}

struct RunningTask {
    secret: Option<SecretRef>,
    /// Dropping it stops the task.
    stop: DropGuard,
    task: JoinHandle<ResourceCache>,
}

impl UserClusterWatch {
    pub(super) fn new(
        watch: InfraWatch,
        shared: UserClusterContext,
        mla: MlaFollowers,
        tenants: Arc<Tenants>,
    ) -> Self {
        Self {
            watch,
            shared,
            mla,
            tenants,
            running: BTreeMap::new(),
        }
    }

    /// Runs until the receiver of events is dropped.
    pub(super) async fn run(mut self) -> Option<()> {
        loop {
            let watch_event = self.watch.next().await;
            for event in self.watch.cache.take(&watch_event) {
                match &event {
                    InventoryEvent::Apply(Fact::UserCluster(cluster)) => {
                        let (name, suspend) = (cluster.name.clone(), cluster.suspend);
                        let labels = &cluster.labels;
                        // Without a source, no part of virtfleet removes the label.
                        let hibernates =
                            labels.get(HIBERNATES_LABEL) == Some("true") && labels.contains_key(SOURCE_LABEL);
                        self.check_namespace(&name, &cluster.namespace.clone());
                        self.send(event).await?;
                        if let ReflectorEvent::Listed(object) | ReflectorEvent::Applied(object) = &watch_event
                        {
                            self.start(&name, suspend, hibernates, object).await;
                            self.mla.apply(&name, object).await;
                        }
                    }
                    InventoryEvent::Delete(FactKey::UserCluster(name)) => {
                        let name = name.clone();
                        // Its Nodes first: a Node without cluster would be a finding.
                        for gone in self.end(&name).await.drain() {
                            self.send(gone).await?;
                        }
                        self.mla.remove(&name).await;
                        self.tenants.remove(&name);
                        self.watch.registry.remove(&UserClusterTask::id(&name));
                        self.send(event).await?;
                    }
                    _ => self.send(event).await?,
                }
            }
            self.watch.report(&watch_event).await?;
        }
    }

    async fn send(&mut self, event: InventoryEvent) -> Option<()> {
        self.watch.events.send(event).await.ok()
    }

    /// Reports a user cluster whose namespace is not watched: none of its VMs is in the inventory.
    fn check_namespace(&self, name: &ClusterName, namespace: &Namespace) {
        let watched = &self.shared.namespaces;
        let is_watched = watched.is_empty() || watched.contains(namespace);
        let note = (!is_watched).then(|| {
            format!(
                "spec.vmis.namespace is {namespace}, which is not among inventory.cluster.namespaces: none of its VMs is in the inventory"
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
        self.watch
            .registry
            .note(name, findings::USER_CLUSTER_UNWATCHED, found);
        self.tenants.update(name, |user_cluster| {
            let changed = user_cluster.note != note;
            user_cluster.note = note;
            changed
        });
    }

    async fn start(&mut self, name: &ClusterName, suspend: bool, hibernates: bool, object: &Object) {
        let (uid, generation) = (object.uid(), object.generation());
        self.tenants.update(name, |user_cluster| {
            let flags = (user_cluster.suspend, user_cluster.hibernates);
            let changed = (&user_cluster.uid, user_cluster.generation) != (&uid, generation)
                || flags != (suspend, hibernates);
            (user_cluster.uid, user_cluster.generation) = (uid, generation);
            (user_cluster.suspend, user_cluster.hibernates) = (suspend, hibernates);
            changed
        });
        self.watch.registry.set_hibernates(name, hibernates);
        // An invalid `spec.kubeconfig` makes the object unreadable.
        let secret = kubeconfig_secret(&object.field()).unwrap_or(None);
        let running = self.running.get(name);
        if running.is_some_and(|running| running.secret == secret && !running.task.is_finished()) {
            return;
        }
        let cache = self.end(name).await;
        let stop = CancellationToken::new();
        let user_cluster = UserClusterTask {
            name: name.clone(),
            secret: secret.clone(),
            secrets: self.shared.secrets.clone(),
            policy: self.shared.policy.clone(),
            max_nodes: self.shared.max_nodes,
            tenants: Arc::clone(&self.tenants),
            registry: Arc::clone(&self.watch.registry),
            events: self.watch.events.clone(),
            cache,
        };
        let task = tokio::spawn(user_cluster.run(stop.clone()));
        let stop = stop.drop_guard();
        self.running
            .insert(name.clone(), RunningTask { secret, stop, task });
    }

    /// Stops the task, if there is one, and returns the cache of its Nodes.
    async fn end(&mut self, name: &ClusterName) -> ResourceCache {
        let new = || ResourceCache::new(Kind::UserNode, Some(name.clone()));
        let Some(running) = self.running.remove(name) else {
            return new();
        };
        drop(running.stop);
        running.task.await.unwrap_or_else(|error| {
            tracing::error!(cluster = %name, %error, "the task of a user cluster panicked");
            new()
        })
    }
}
