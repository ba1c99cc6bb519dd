//! One VM with labels of its infra node, for the samples of its guest.

use std::sync::Arc;

use virtfleet_wire::ids::VmKey;

use super::FleetIndex;
use crate::view::VmView;

/// A VM, and labels of the infra node on which it runs.
#[derive(Debug, Clone)]
pub struct LocatedVm {
    pub view: Arc<VmView>,
    /// The values of the requested labels; none for a label that the node does not have.
    pub host_labels: Vec<Option<String>>,
}

impl FleetIndex {
    /// One VM, with the labels of these keys of its infra node. None for an unknown VM.
    pub fn located_vm(&self, key: &VmKey, label_keys: &[&str]) -> Option<LocatedVm> {
        let view = Arc::clone(self.store.vms.get(key)?.view.as_ref()?);
        let host = view.infra_node.as_ref();
        let host = host.and_then(|node| self.store.infra_nodes.get(node));
        let host_labels = label_keys
            .iter()
            .map(|key| Some(host?.labels.get(key)?.to_string()))
            .collect();
        Some(LocatedVm { view, host_labels })
    }
}
