//! Which VMs are in which domain: rules about other VMs.
//!
//! VMs are found by one label of a selector, so the cost does not grow with the square of the
//! fleet. Selectors without labels need a walk over a namespace; these are limited in total.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
};

use virtfleet_wire::ids::Namespace;

use super::fleet::{PlacedVm, PlacementFleet};
use crate::{
    scheduling::{PodTerm, Scheduling},
    selector::Selector,
};

/// Maximum comparisons of a VM with a selector in one check.
const MAX_COMPARISONS: usize = 4_000_000;

/// Domains with the number of VMs in each.
pub(super) type Domains<'a> = HashMap<&'a str, usize>;

/// VMs of one namespace with the same rules.
pub(super) struct VmGroup<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) rules: &'a Scheduling,
    /// Places in [`PlacementFleet::vms`].
    pub(super) members: Vec<usize>,
}

/// VMs by label and by namespace, and the infra node of each, which may be changed to try others.
pub(super) struct Occupancy<'a> {
    fleet: &'a PlacementFleet,
    by_label: HashMap<(&'a str, &'a str, &'a str), Vec<usize>>,
    by_namespace: BTreeMap<&'a Namespace, Vec<usize>>,
    /// Place of each VM's infra node in [`PlacementFleet::hosts`].
    host_of: Vec<Option<usize>>,
    comparisons: Cell<usize>,
}

impl<'a> Occupancy<'a> {
    pub(super) fn new(fleet: &'a PlacementFleet) -> Self {
        let mut by_label = HashMap::<_, Vec<usize>>::new();
        let mut by_namespace = BTreeMap::<_, Vec<usize>>::new();
        for (at, vm) in fleet.vms.iter().enumerate() {
            let namespace = &vm.view.namespace;
            by_namespace.entry(namespace).or_default().push(at);
            for (key, value) in vm.labels.iter() {
                let label = (namespace.as_str(), key, value);
                by_label.entry(label).or_default().push(at);
            }
        }
        let host = |vm: &PlacedVm| fleet.host_index(vm.host()?);
        Self {
            fleet,
            by_label,
            by_namespace,
            host_of: fleet.vms.iter().map(host).collect(),
            comparisons: Cell::new(0),
        }
    }

    /// Moves a VM; none: it is nowhere.
    pub(super) fn place(&mut self, vm: usize, host: Option<usize>) {
        if let Some(place) = self.host_of.get_mut(vm) {
            *place = host;
        }
    }

    /// Whether selectors were compared so often that some were skipped.
    pub(super) fn is_exhausted(&self) -> bool {
        self.comparisons.get() >= MAX_COMPARISONS
    }

    /// Groups of VMs with the same rules, by namespace.
    pub(super) fn groups(&self) -> Vec<VmGroup<'a>> {
        let mut groups = BTreeMap::<(&Namespace, *const Scheduling), VmGroup<'a>>::new();
        for (at, vm) in self.fleet.vms.iter().enumerate() {
            let (namespace, rules) = (&vm.view.namespace, &*vm.scheduling);
            let group = groups
                .entry((namespace, std::ptr::from_ref(rules)))
                .or_insert_with(|| VmGroup {
                    namespace,
                    rules,
                    members: Vec::new(),
                });
            group.members.push(at);
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|group| group.members.first().copied());
        groups
    }

    /// The VMs of these namespaces that a selector matches.
    fn matching(&self, namespaces: &[&Namespace], selector: Option<&Selector>) -> Vec<usize> {
        let Some(selector) = selector else {
            return Vec::new();
        };
        let first = selector.match_labels.iter().next();
        let candidates = namespaces.iter().filter_map(|namespace| match first {
            Some((key, value)) => self.by_label.get(&(namespace.as_str(), key, value)),
            None => self.by_namespace.get(*namespace),
        });
        let mut found = Vec::new();
        for &at in candidates.flatten() {
            let spent = self.comparisons.get();
            if spent >= MAX_COMPARISONS {
                break;
            }
            self.comparisons.set(spent + 1);
            if self
                .fleet
                .vms
                .get(at)
                .is_some_and(|vm| selector.matches(&vm.labels))
            {
                found.push(at);
            }
        }
        found.sort_unstable();
        found
    }

    /// The VMs that a term of a VM in `namespace` matches.
    pub(super) fn matching_term(&self, term: &PodTerm, namespace: &Namespace) -> Vec<usize> {
        let namespaces: Vec<&Namespace> = if term.namespaces.is_empty() {
            vec![namespace]
        } else {
            term.namespaces.iter().collect()
        };
        self.matching(&namespaces, term.selector.as_ref())
    }

    /// The VMs of a namespace that a selector matches.
    pub(super) fn matching_in(&self, namespace: &Namespace, selector: Option<&Selector>) -> Vec<usize> {
        self.matching(&[namespace], selector)
    }

    /// The domain of an infra node.
    pub(super) fn domain(&self, host: usize, topology_key: &str) -> Option<&'a str> {
        self.fleet.hosts.get(host)?.labels.get(topology_key)
    }

    pub(super) fn domain_of(&self, vm: usize, topology_key: &str) -> Option<&'a str> {
        self.domain(self.host_at(vm)?, topology_key)
    }

    /// The infra node of a VM.
    pub(super) fn host_at(&self, vm: usize) -> Option<usize> {
        *self.host_of.get(vm)?
    }

    /// Counts these VMs by domain.
    pub(super) fn count(&self, vms: &[usize], topology_key: &str) -> Domains<'a> {
        let mut domains = Domains::new();
        for domain in vms.iter().filter_map(|&vm| self.domain_of(vm, topology_key)) {
            *domains.entry(domain).or_default() += 1;
        }
        domains
    }
}
