//! One watch of the infra cluster: the objects of one kind.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use virtfleet_collector_core::facts::InventoryEvent;

use super::{
    object::Object,
    reflector::{Reflector, ReflectorEvent},
    resource_cache::ResourceCache,
    status_registry::{StatusRegistry, WatchId},
};

pub(super) struct InfraWatch {
    pub(super) id: WatchId,
    pub(super) reflector: Reflector<Object>,
    pub(super) cache: ResourceCache,
    pub(super) registry: Arc<StatusRegistry>,
    pub(super) events: mpsc::Sender<InventoryEvent>,
    /// Changes whenever the watch may be dead, because the API server does not answer.
    pub(super) renewals: watch::Receiver<u64>,
}

impl InfraWatch {
    pub(super) async fn run(mut self) -> Option<()> {
        loop {
            let watch_event = self.next().await;
            for event in self.cache.take(&watch_event) {
                self.events.send(event).await.ok()?;
            }
            self.report(&watch_event).await?;
        }
    }

    /// The next event of the watch, which is resumed whenever it may be dead.
    pub(super) async fn next(&mut self) -> ReflectorEvent<Object> {
        loop {
            tokio::select! {
                event = self.reflector.next() => return event,
                Ok(()) = self.renewals.changed() => self.reflector.renew(),
            }
        }
    }

    /// Updates the registry; emits `Synced` if this completes the inventory.
    pub(super) async fn report(&mut self, event: &ReflectorEvent<Object>) -> Option<()> {
        let complete = match event {
            ReflectorEvent::ListStarted => {
                self.registry.list_started(&self.id);
                false
            }
            ReflectorEvent::Complete => self.registry.listed(&self.id),
            ReflectorEvent::Failed(failure) => self.registry.failed(&self.id, failure),
            ReflectorEvent::Watching => {
                self.registry.works(&self.id);
                false
            }
            _ => false,
        };
        if !matches!(event, ReflectorEvent::Listed(_)) {
            self.registry
                .set_objects(&self.id, self.cache.len(), self.cache.unreadable());
        }
        if complete {
            tracing::info!("all watches of the infra cluster are synced");
            self.events.send(InventoryEvent::Synced).await.ok()?;
        }
        Some(())
    }
}
