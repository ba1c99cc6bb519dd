//! Follows `spec.mla` of the UserClusters and the Secrets that it names: the watches of Secrets are
//! those of kubeconfigs, one per namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::Arc,
};

use futures_util::future::select_all;
use serde_json::Value;
use tokio::{sync::watch, task::JoinHandle};
use virtfleet_wire::ids::ClusterName;

use super::{
    object::Object,
    secrets::{NamespaceSecrets, Secrets},
};
use crate::{
    mla::settings::{SecretLookup, StreamRegistry, TenantMla, parse_spec},
    objects::{InfraSecretRef, MlaSpec},
    tenants::Tenants,
};

/// The tasks that follow the Secrets of user clusters' streams.
pub(super) struct MlaFollowers {
    secrets: Secrets,
    streams: Arc<StreamRegistry>,
    tenants: Arc<Tenants>,
    running: BTreeMap<ClusterName, MlaFollower>,
}

struct MlaFollower {
    spec: Value,
    task: JoinHandle<()>,
}

impl Drop for MlaFollower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MlaFollowers {
    pub(super) fn new(secrets: Secrets, streams: Arc<StreamRegistry>, tenants: Arc<Tenants>) -> Self {
        Self {
            secrets,
            streams,
            tenants,
            running: BTreeMap::new(),
        }
    }

    /// Follows the present `spec.mla` of a UserCluster.
    pub(super) async fn apply(&mut self, name: &ClusterName, object: &Object) {
        let spec = object.field().at("spec.mla").ok().and_then(|field| field.json());
        let Some(spec) = spec else {
            self.remove(name).await;
            publish(&self.tenants, name, &self.streams);
            return;
        };
        if self.running.get(name).is_some_and(|running| running.spec == spec) {
            return;
        }
        let follower = SecretFollower {
            name: name.clone(),
            streams: Arc::clone(&self.streams),
            tenants: Arc::clone(&self.tenants),
        };
        // The new watches start before those of the previous spec end: a namespace that both name
        // is not read again.
        let parsed = parse_spec(&spec);
        let named = parsed.as_ref().map(MlaSpec::secrets).unwrap_or_default();
        let namespaces: BTreeSet<_> = named.iter().map(|at| at.namespace.clone()).collect();
        let watches = namespaces.into_iter().map(|namespace| {
            let watch = self.secrets.watch_namespace(&namespace);
            (namespace, watch)
        });
        let watches = watches.collect();
        self.end(name).await;
        let task = tokio::spawn(follower.run(parsed, named, watches));
        self.running.insert(name.clone(), MlaFollower { spec, task });
    }

    /// The UserCluster is gone.
    pub(super) async fn remove(&mut self, name: &ClusterName) {
        self.end(name).await;
        self.streams.set_tenant(name, None);
    }

    /// Ends the task and waits for it, so that it sets nothing afterwards.
    async fn end(&mut self, name: &ClusterName) {
        if let Some(mut running) = self.running.remove(name) {
            running.task.abort();
            (&mut running.task).await.ok();
        }
    }
}

/// Follows the Secrets of one user cluster's stream, and the collector's settings for streams.
struct SecretFollower {
    name: ClusterName,
    streams: Arc<StreamRegistry>,
    tenants: Arc<Tenants>,
}

impl SecretFollower {
    async fn run(
        self,
        spec: Result<MlaSpec, String>,
        named: Vec<InfraSecretRef>,
        mut watches: BTreeMap<String, watch::Receiver<NamespaceSecrets>>,
    ) {
        let mut defaults = self.streams.defaults_changes();
        loop {
            defaults.mark_unchanged();
            let lookups = named.iter().map(|at| {
                let watch = watches.get_mut(&at.namespace);
                let lookup = watch.map_or(SecretLookup::Waiting, |watch| {
                    watch.borrow_and_update().find_all(at)
                });
                (at.clone(), lookup)
            });
            let known = TenantMla {
                secrets: lookups.collect(),
                spec: spec.clone(),
            };
            self.streams.set_tenant(&self.name, Some(&known));
            publish(&self.tenants, &self.name, &self.streams);
            drop(known);
            // An error means that the watch has ended, which it does with this task only.
            let changes = watches.values_mut().map(|watch| {
                let change: Pin<Box<dyn Future<Output = _> + Send + '_>> = Box::pin(watch.changed());
                change
            });
            let settings: Pin<Box<dyn Future<Output = _> + Send + '_>> = Box::pin(defaults.changed());
            let changes: Vec<_> = changes.chain([settings]).collect();
            if let (Err(_), ..) = select_all(changes).await {
                return;
            }
        }
    }
}

/// Passes the condition to the publisher of statuses.
fn publish(tenants: &Tenants, name: &ClusterName, streams: &StreamRegistry) {
    let status = streams.status(name);
    tenants.update(name, |tenant| {
        let changed = tenant.mla != status;
        tenant.mla = status;
        changed
    });
}
