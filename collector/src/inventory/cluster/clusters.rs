//! The watch of `UserCluster`s, which starts and ends the tasks of user clusters.

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use virtfleet_collector_core::facts::{Fact, FactKey, InventoryEvent};
use virtfleet_wire::ids::ClusterName;

use super::{Watch, follow::Said, keeper::Keeper, kinds::Kind, object::Object, tenant::Tenant};
use crate::{
    inventory::read::{SecretRef, kubeconfig_secret},
    tenants::Tenants,
};

/// See the module.
pub(super) struct Clusters {
    watch: Watch,
    infra: kube::Client,
    tenants: Arc<Tenants>,
    running: BTreeMap<ClusterName, Running>,
}

struct Running {
    secret: Option<SecretRef>,
    /// Dropped, it stops the task, too.
    stop: DropGuard,
    task: JoinHandle<Keeper>,
}

impl Clusters {
    pub(super) fn new(watch: Watch, infra: kube::Client, tenants: Arc<Tenants>) -> Self {
        Self {
            watch,
            infra,
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
            infra: self.infra.clone(),
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
