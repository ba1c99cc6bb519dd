//! Where the collector learns what there is: readers that turn Kubernetes objects into facts and emit
//! [`InventoryEvent`](virtfleet_collector_core::facts::InventoryEvent)s.

pub mod folder;
