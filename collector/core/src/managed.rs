//! Which VMs have an agent that the collector pulls. Others are shown, and silence is no problem of
//! theirs.

use crate::facts::{Exclusion, Selector, Vm, Vmi};

/// Annotation of a VirtualMachine or VMI: with the value `true`, its agent is not dialled.
pub const IGNORE_ANNOTATION: &str = "virtfleet.io/ignore";

/// Selects the VMs whose agents are pulled.
#[derive(Debug, Clone, Default)]
pub struct ManagedRules {
    /// Selects VMs by label; empty: all.
    pub selector: Selector,
    /// Labels and conditions of Nodes follow for other VMs, too.
    pub nodes_of_unmanaged: bool,
}

impl ManagedRules {
    /// Whether the agent of a VM is pulled. A guest that has answered has an agent, whatever its
    /// operating system is said to be.
    pub(crate) fn is_managed(&self, vmi: Option<&Vmi>, vm: Option<&Vm>, has_answered: bool) -> bool {
        let excluded = [vmi.map(|vmi| vmi.exclusion), vm.map(|vm| vm.exclusion)];
        let is = |exclusion| excluded.contains(&Some(exclusion));
        // As for UserClusters: labels of the VMI, and those that only the VirtualMachine has.
        let label = |key: &str| {
            let of_vmi = vmi.and_then(|vmi| vmi.labels.get(key));
            of_vmi.or_else(|| vm.and_then(|vm| vm.labels.get(key)))
        };
        !is(Exclusion::Ignored)
            && self.selector.matches_with(label)
            && (!is(Exclusion::Windows) || has_answered)
    }
}
