//! Which VMs have an agent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::objects::LabelSelector;

/// Which VMs have an agent. A VirtualMachine or VMI with the annotation `virtfleet.io/ignore:
/// "true"` is always excluded, and so are all VMs of a Namespace with it, and a guest with Windows
/// that has never answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct VmSettings {
    /// Selects VMs by label: labels of the VMI, and those that only its VirtualMachine has. Absent:
    /// all VMs. The agents of others are not dialled, and these VMs are not counted.
    pub selector: Option<LabelSelector>,
    /// Labels and conditions of Nodes follow also for VMs whose agents are not dialled. `false`:
    /// the collector changes nothing on the Nodes of these VMs.
    pub nodes_of_unmanaged: bool,
}
