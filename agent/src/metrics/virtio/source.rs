//! Where the room gets its values from: who looks at the machine, and who judges what was seen.

use virtfleet_agent_core::{nic::state::NicState, virtio::Machine};
use virtfleet_wire::{finding::Finding, settings::NicSettings};

use crate::host::{NicCalls, Roots};

/// Looks at the machine; the last argument says whether to look for what only root sees.
pub(super) type Observe = fn(&Roots, &dyn NicCalls, bool) -> Machine;

/// Says what is wrong.
pub(super) type Findings = fn(&Machine, Option<&NicState>, &NicSettings) -> Vec<Finding>;

pub(super) const OBSERVE: Observe = crate::host::virtio::observe;

pub(super) const FINDINGS: Findings = |_, _, _| Vec::new();
