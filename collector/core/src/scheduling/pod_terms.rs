//! Pod affinity, pod anti-affinity and spread constraints: rules about other VMs. KubeVirt copies
//! them to the virt-launcher pod, whose labels are those of the VMI.

use virtfleet_wire::ids::Namespace;

use crate::selector::Selector;

/// A term of pod affinity or anti-affinity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodTerm {
    /// The other VMs; none: no VM matches.
    pub selector: Option<Selector>,
    /// Namespaces of the other VMs; empty: the namespace of the VM itself.
    pub namespaces: Box<[Namespace]>,
    /// Label of infra nodes; nodes with the same value are one domain.
    pub topology_key: Box<str>,
    /// It has a part that is not evaluated: `namespaceSelector`, `matchLabelKeys` or
    /// `mismatchLabelKeys`.
    pub is_partial: bool,
}

/// A preference about other VMs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WeightedPodTerm {
    /// From 1 to 100.
    pub weight: u8,
    /// The other VMs.
    pub term: PodTerm,
}

/// One of `topologySpreadConstraints`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SpreadConstraint {
    /// Maximum difference between two domains.
    pub max_skew: u32,
    /// Label of infra nodes; nodes with the same value are one domain.
    pub topology_key: Box<str>,
    /// Whether a VM that would exceed it is not scheduled: `DoNotSchedule`.
    pub is_required: bool,
    /// The VMs that are counted; none: no VM matches.
    pub selector: Option<Selector>,
    /// It has a part that is not evaluated: `minDomains`, `matchLabelKeys`, or another policy for
    /// nodes than the default.
    pub is_partial: bool,
}
