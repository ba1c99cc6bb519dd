//! Where a VM may run, as its VMI says: node selector, affinity, tolerations, spread constraints,
//! eviction strategy, and the resources that it requests.

mod node_terms;
mod pod_terms;
mod resources;
mod taint;

use std::{collections::HashSet, sync::Arc};

pub use self::{
    node_terms::{NodeComparison, NodeExpression, NodeTerm, NodeTraits, WeightedNodeTerm},
    pod_terms::{PodTerm, SpreadConstraint, WeightedPodTerm},
    resources::{InvalidQuantity, ResourceAmounts, parse_quantity},
    taint::{OperatorOfToleration, Taint, TaintEffect, Toleration},
};

/// Maximum items kept of any list of a VMI's scheduling rules. Real VMIs have a few.
pub const MAX_RULES: usize = 32;
/// Maximum values kept of one requirement.
pub const MAX_VALUES: usize = 128;

/// `spec.evictionStrategy` of a VMI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EvictionStrategy {
    /// Not set: KubeVirt's default, which is `None` unless the KubeVirt object sets another.
    #[default]
    Default,
    /// `None`: an eviction stops the VM.
    Nothing,
    /// `LiveMigrate`: an eviction migrates the VM, and is refused if that is impossible.
    LiveMigrate,
    /// `LiveMigrateIfPossible`: an eviction migrates the VM, and stops it if that is impossible.
    LiveMigrateIfPossible,
    /// `External`: an eviction is refused; another controller moves or deletes the VM.
    External,
    /// A value that this version does not know.
    Other,
}

impl EvictionStrategy {
    pub fn of(text: &str) -> Self {
        match text {
            "" => Self::Default,
            "None" => Self::Nothing,
            "LiveMigrate" => Self::LiveMigrate,
            "LiveMigrateIfPossible" => Self::LiveMigrateIfPossible,
            "External" => Self::External,
            _ => Self::Other,
        }
    }

    /// The name in KubeVirt.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "(default)",
            Self::Nothing => "None",
            Self::LiveMigrate => "LiveMigrate",
            Self::LiveMigrateIfPossible => "LiveMigrateIfPossible",
            Self::External => "External",
            Self::Other => "(unknown)",
        }
    }
}

/// Where a VM may run, and what it requests. VMs of one pool share one copy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Scheduling {
    /// `spec.nodeSelector`, sorted by key.
    pub node_selector: Box<[(Box<str>, Box<str>)]>,
    /// Required node affinity: one term must match; none: there is no such rule.
    pub required_nodes: Option<Box<[NodeTerm]>>,
    pub preferred_nodes: Box<[WeightedNodeTerm]>,
    /// Required pod affinity: the domain must have a matching VM.
    pub required_near: Box<[PodTerm]>,
    /// Required pod anti-affinity: the domain must have no matching VM.
    pub required_apart: Box<[PodTerm]>,
    pub preferred_near: Box<[WeightedPodTerm]>,
    /// Preferred pod anti-affinity.
    pub preferred_apart: Box<[WeightedPodTerm]>,
    /// `spec.topologySpreadConstraints`.
    pub spread: Box<[SpreadConstraint]>,
    /// `spec.tolerations`.
    pub tolerations: Box<[Toleration]>,
    /// `spec.evictionStrategy`.
    pub eviction: EvictionStrategy,
    /// Requests that the VMI itself states or implies, without KubeVirt's overhead.
    pub requests: ResourceAmounts,
    /// Number of vCPUs; none if the VMI does not say.
    pub vcpus: Option<u32>,
    /// It has more rules than are kept, or some cannot be read, so its rules cannot be checked.
    pub is_cut: bool,
}

impl Scheduling {
    /// Whether it has a rule about other VMs.
    pub fn has_pod_rules(&self) -> bool {
        !(self.required_near.is_empty()
            && self.required_apart.is_empty()
            && self.preferred_near.is_empty()
            && self.preferred_apart.is_empty()
            && self.spread.is_empty())
    }
}

/// The scheduling rules of all VMs, each stored once.
#[derive(Debug, Default)]
pub(crate) struct SchedulingInterner {
    all: HashSet<Arc<Scheduling>>,
    /// Number of rules above which unused ones are dropped.
    sweep_above: usize,
}

/// Minimum number of rules before unused ones are dropped.
const MIN_SWEEP_SIZE: usize = 256;

impl SchedulingInterner {
    /// Replaces `rules` by an equal, interned copy.
    pub(crate) fn share(&mut self, rules: &mut Arc<Scheduling>) {
        if let Some(known) = self.all.get(rules) {
            *rules = Arc::clone(known);
            return;
        }
        self.all.insert(Arc::clone(rules));
        if self.all.len() > self.sweep_above.max(MIN_SWEEP_SIZE) {
            self.all.retain(|one| Arc::strong_count(one) > 1);
            self.sweep_above = self.all.len() * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rules_are_stored_once_and_unused_ones_are_dropped() {
        let mut interner = SchedulingInterner::default();
        let make = |vcpus| {
            Arc::new(Scheduling {
                vcpus: Some(vcpus),
                ..Scheduling::default()
            })
        };
        let (mut one, mut other) = (make(4), make(4));
        interner.share(&mut one);
        interner.share(&mut other);
        assert!(Arc::ptr_eq(&one, &other));
        for vcpus in 0..4096 {
            interner.share(&mut make(vcpus));
        }
        assert!(interner.all.len() <= MIN_SWEEP_SIZE + 1, "{}", interner.all.len());
        let mut again = make(4);
        interner.share(&mut again);
        assert!(Arc::ptr_eq(&one, &again), "used rules stay");
    }

    #[test]
    fn strategies_have_kubevirts_names() {
        for name in ["None", "LiveMigrate", "LiveMigrateIfPossible", "External"] {
            assert_eq!(EvictionStrategy::of(name).as_str(), name);
        }
        assert_eq!(EvictionStrategy::of(""), EvictionStrategy::Default);
        assert_eq!(EvictionStrategy::of("Later"), EvictionStrategy::Other);
    }
}
