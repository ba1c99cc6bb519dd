//! The Nodes of one user cluster as events of the inventory, with any client: for simulations.

use kube::{Api, Client};
use virtfleet_collector_core::facts::InventoryEvent;
use virtfleet_wire::ids::ClusterName;

use super::{kinds::Kind, object::Object, reflector::Reflector, resource_cache::ResourceCache};

/// Maximum Nodes.
const MAX_NODES: usize = 100;

/// List and watch of a user cluster's Nodes, as the inventory does it.
pub(crate) struct NodeEvents {
    reflector: Reflector<Object>,
    cache: ResourceCache,
}

impl NodeEvents {
    /// Watches the Nodes of `cluster` through `client`.
    pub(crate) fn new(client: Client, cluster: &ClusterName) -> Self {
        let api = Api::all_with(client, &Kind::UserNode.resource());
        Self {
            reflector: Reflector::tenant(api, MAX_NODES),
            cache: ResourceCache::new(Kind::UserNode, Some(cluster.clone())),
        }
    }

    /// The next events; dropping a call only cancels the current request.
    pub(crate) async fn next(&mut self) -> Vec<InventoryEvent> {
        let event = self.reflector.next().await;
        self.cache.take(&event)
    }

    /// Removes all Nodes: the cluster is gone.
    pub(crate) fn drain(&mut self) -> Vec<InventoryEvent> {
        self.cache.drain()
    }
}
