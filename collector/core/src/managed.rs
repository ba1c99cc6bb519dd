//! Which VMs have an agent that the collector pulls. Others are shown, and silence is no problem of
//! theirs.

use crate::facts::{Exclusion, Selector, Vm, Vmi};

/// Annotation of a VirtualMachine, a VMI or a Namespace: with the value `true`, its agent is not
/// dialled, or those of all its VMs.
pub const IGNORE_ANNOTATION: &str = "virtfleet.io/ignore";

/// Selects the VMs whose agents are pulled.
#[derive(Debug, Clone, Default)]
pub struct ManagedRules {
    /// Selects VMs by label; empty: all.
    pub selector: Selector,
    /// Labels and conditions of Nodes follow for other VMs, too.
    pub nodes_of_unmanaged: bool,
}

/// What excludes a VM, so that its agent is not dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExcludedBy {
    /// The annotation of its VMI or VirtualMachine.
    Annotation,
    /// The annotation of its namespace.
    Namespace,
    /// `vms.selector`.
    Selector,
    /// Its operating system.
    Windows,
}

impl ExcludedBy {
    /// The reason, as the end of a sentence.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Annotation => "it has the annotation virtfleet.io/ignore",
            Self::Namespace => "its namespace has the annotation virtfleet.io/ignore",
            Self::Selector => "vms.selector does not select it",
            Self::Windows => "its guest is Windows",
        }
    }
}

impl ManagedRules {
    /// Why the agent of a VM is not pulled; none if it is. A guest that has answered has an agent,
    /// whatever its operating system is said to be.
    pub(crate) fn excluded_by(
        &self,
        vmi: Option<&Vmi>,
        vm: Option<&Vm>,
        is_namespace_ignored: bool,
        has_answered: bool,
    ) -> Option<ExcludedBy> {
        let excluded = [vmi.map(|vmi| vmi.exclusion), vm.map(|vm| vm.exclusion)];
        let is = |exclusion| excluded.contains(&Some(exclusion));
        // As for UserClusters: labels of the VMI, and those that only the VirtualMachine has.
        let label = |key: &str| {
            let of_vmi = vmi.and_then(|vmi| vmi.labels.get(key));
            of_vmi.or_else(|| vm.and_then(|vm| vm.labels.get(key)))
        };
        if is(Exclusion::Ignored) {
            Some(ExcludedBy::Annotation)
        } else if is_namespace_ignored {
            Some(ExcludedBy::Namespace)
        } else if !self.selector.matches_with(label) {
            Some(ExcludedBy::Selector)
        } else if is(Exclusion::Windows) && !has_answered {
            Some(ExcludedBy::Windows)
        } else {
            None
        }
    }
}
