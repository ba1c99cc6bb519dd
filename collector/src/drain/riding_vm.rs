//! A VM on the infra node, as far as reading depends on it.

use virtfleet_collector_core::placement::PlacedVm;
use virtfleet_wire::ids::VmKey;

/// A VM on the infra node.
#[derive(Debug, Clone)]
pub(super) struct RidingVm {
    pub(super) key: VmKey,
    /// `metadata.uid` of its VMI.
    pub(super) uid: Option<String>,
}

impl RidingVm {
    pub(super) fn of(vm: &PlacedVm) -> Self {
        Self {
            key: vm.key(),
            uid: vm.view.uid.as_ref().map(ToString::to_string),
        }
    }
}
