//! What a change touches.

use std::collections::BTreeSet;
use virtfleet_wire::ids::VmKey;

/// VMs that an event affects.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// VMs whose keys may change; their views change only if the keys do.
    pub(super) keys: BTreeSet<VmKey>,
    /// VMs whose keys and views may change.
    pub(super) views: BTreeSet<VmKey>,
    /// VMs whose Nodes' desired labels may change, and nothing else.
    pub(super) labels: BTreeSet<VmKey>,
}
