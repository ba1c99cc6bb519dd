//! Room on the other infra nodes, taken by one VM after the other.

use std::collections::{BTreeMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::NodeName;

use super::evidence::VmVolume;
use crate::{
    facts::InfraNode,
    placement::{
        fit::{closed, repelling, unmet_node_rules},
        fleet::{PlacedVm, PlacementFleet},
        occupancy::{Domains, Occupancy, VmGroup},
    },
    scheduling::{PodTerm, ResourceAmounts, Scheduling},
};

/// Another infra node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainHost {
    /// Its name.
    pub name: NodeName,
    /// What VMs may still request now.
    pub free: ResourceAmounts,
    /// The same after the drain, by the estimate.
    pub free_after: ResourceAmounts,
    /// VMs that it takes.
    pub takes: usize,
}

/// Where a VM could go.
pub(super) struct Seat {
    pub(super) target: Option<NodeName>,
    /// Infra nodes that its rules allow and that have room.
    pub(super) fitting: Vec<NodeName>,
    /// Why other infra nodes are none of these, with their number.
    pub(super) refusals: BTreeMap<&'static str, usize>,
    /// Its rules allow an infra node, and none of these has room.
    pub(super) lacks_room: bool,
}

/// What an infra node has left.
#[derive(Clone, Copy)]
struct Room {
    at_first: ResourceAmounts,
    free: ResourceAmounts,
    pods: Option<u32>,
    takes: usize,
}

/// The other infra nodes.
pub(super) struct Seats<'a> {
    fleet: &'a PlacementFleet,
    occupancy: Occupancy<'a>,
    groups: Vec<VmGroup<'a>>,
    /// By place in [`PlacementFleet::hosts`]; none: the capacity is not known.
    rooms: Vec<Option<Room>>,
    own: Option<usize>,
    has_partial_rules: bool,
}

const NO_ROOM: &str = "without room";

impl<'a> Seats<'a> {
    /// The infra nodes besides `own`, whose VMs are `leaving`.
    pub(super) fn new(fleet: &'a PlacementFleet, own: Option<usize>, leaving: &[usize]) -> Self {
        let room = |host: &InfraNode| {
            let allocatable = host.allocatable?;
            Some(Room {
                at_first: allocatable.resources,
                free: allocatable.resources,
                pods: allocatable.pods,
                takes: 0,
            })
        };
        let mut rooms: Vec<Option<Room>> = fleet.hosts.iter().map(room).collect();
        for vm in &fleet.vms {
            // While it migrates, it has a pod on both infra nodes.
            let hosts = [vm.host(), vm.migrating_to().filter(|to| Some(*to) != vm.host())];
            for host in hosts.into_iter().flatten() {
                let place = fleet.host_index(host).and_then(|at| rooms.get_mut(at));
                if let Some(Some(room)) = place {
                    room.take(vm.requests);
                    room.at_first = room.free;
                }
            }
        }
        let mut occupancy = Occupancy::new(fleet);
        let groups = occupancy.groups();
        for &vm in leaving {
            occupancy.place(vm, None);
        }
        Self {
            fleet,
            occupancy,
            groups,
            rooms,
            own,
            has_partial_rules: false,
        }
    }

    /// A VM stays on the infra node.
    pub(super) fn stay(&mut self, vm: usize) {
        self.occupancy.place(vm, self.own);
    }

    /// Takes the room that the VM fills most, among the infra nodes that can use its volumes.
    pub(super) fn take(&mut self, at: usize, vm: &PlacedVm, volumes: &[VmVolume]) -> Seat {
        let rules = PodRules::of(self, at, vm);
        self.has_partial_rules |= rules.is_partial || vm.scheduling.is_cut;
        let mut seat = Seat {
            target: None,
            fitting: Vec::new(),
            refusals: BTreeMap::new(),
            lacks_room: false,
        };
        let mut best: Option<(ResourceAmounts, usize)> = None;
        for (place, host) in self.fleet.hosts.iter().enumerate() {
            if Some(place) == self.own {
                continue;
            }
            if let Some(why) = refusal(&vm.scheduling, host, &rules) {
                *seat.refusals.entry(why).or_default() += 1;
                continue;
            }
            if !volumes.iter().all(|volume| volume.reaches(host)) {
                *seat.refusals.entry("out of reach of its volumes").or_default() += 1;
                continue;
            }
            let Some(room) = self.rooms.get(place).copied().flatten() else {
                *seat.refusals.entry("of unknown capacity").or_default() += 1;
                continue;
            };
            if !room.free.holds(vm.requests) || room.pods == Some(0) {
                *seat.refusals.entry(NO_ROOM).or_default() += 1;
                continue;
            }
            seat.fitting.push(host.name.clone());
            let left = room.free - vm.requests;
            let is_better = best.is_none_or(|(known, _)| {
                (left.memory_bytes, left.cpu_milli) < (known.memory_bytes, known.cpu_milli)
            });
            if is_better {
                best = Some((left, place));
            }
        }
        seat.lacks_room = best.is_none() && seat.refusals.contains_key(NO_ROOM);
        if let Some((_, place)) = best {
            if let Some(Some(room)) = self.rooms.get_mut(place) {
                room.take(vm.requests);
                room.takes += 1;
            }
            self.occupancy.place(at, Some(place));
            seat.target = self.fleet.hosts.get(place).map(|host| host.name.clone());
        } else {
            self.stay(at);
        }
        seat
    }

    /// The infra nodes that took a VM.
    pub(super) fn hosts(&self) -> Vec<DrainHost> {
        let all = self.fleet.hosts.iter().zip(&self.rooms);
        let took = all.filter_map(|(host, room)| {
            let room = room.filter(|room| room.takes > 0)?;
            Some(DrainHost {
                name: host.name.clone(),
                free: room.at_first,
                free_after: room.free,
                takes: room.takes,
            })
        });
        took.collect()
    }

    /// What could not be evaluated.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.has_partial_rules || self.occupancy.is_exhausted() {
            notes.push("some affinity rules, which the collector does not evaluate or keep".to_owned());
        }
        let capacities = self
            .fleet
            .hosts
            .iter()
            .filter(|host| host.allocatable.is_none())
            .count();
        if capacities > 0 {
            notes.push(format!("allocatable resources of infra nodes: {capacities}"));
        }
        notes
    }
}

impl Room {
    fn take(&mut self, requests: ResourceAmounts) {
        self.free = self.free - requests;
        self.pods = self.pods.map(|pods| pods.saturating_sub(1));
    }
}

/// Why an infra node may not run a VM, apart from room.
fn refusal(rules: &Scheduling, host: &InfraNode, pods: &PodRules<'_>) -> Option<&'static str> {
    if let Some(why) = closed(host) {
        return Some(why);
    }
    if repelling(rules, host).is_some() {
        return Some("with a taint that it does not tolerate");
    }
    if unmet_node_rules(rules, host).is_some() {
        return Some("outside of its node affinity");
    }
    pods.refusal(host)
}

/// Rules about other VMs, with the present number of VMs in each domain.
struct PodRules<'a> {
    /// Topology key, and domains that the VM must not enter.
    excluded: Vec<(&'a str, HashSet<&'a str>)>,
    /// Topology key, and domains of which it must enter one.
    required: Vec<(&'a str, HashSet<&'a str>)>,
    spread: Vec<SpreadState<'a>>,
    is_partial: bool,
}

/// A required spread constraint.
struct SpreadState<'a> {
    topology_key: &'a str,
    max_skew: usize,
    counts: Domains<'a>,
    least: usize,
    /// Whether the VM counts itself.
    adds: usize,
}

impl<'a> PodRules<'a> {
    fn of(seats: &Seats<'a>, at: usize, vm: &PlacedVm) -> Self {
        let (occupancy, namespace) = (&seats.occupancy, &vm.view.namespace);
        let Some(placed) = seats.fleet.vms.get(at) else {
            return Self::none();
        };
        let rules: &'a Scheduling = &placed.scheduling;
        let mut found = Self::none();
        let domains = |term: &'a PodTerm| {
            let mut matching = occupancy.matching_term(term, namespace);
            let before = matching.len();
            matching.retain(|&other| other != at);
            let is_own = before > matching.len();
            let domains = occupancy.count(&matching, &term.topology_key);
            (domains.into_keys().collect::<HashSet<_>>(), is_own)
        };
        for term in &rules.required_apart {
            found.is_partial |= term.is_partial;
            found.excluded.push((&term.topology_key, domains(term).0));
        }
        for term in &rules.required_near {
            found.is_partial |= term.is_partial;
            let (domains, is_own) = domains(term);
            // The first VM of a set that attracts itself may go anywhere.
            if !(term.is_partial || domains.is_empty() && is_own) {
                found.required.push((&term.topology_key, domains));
            }
        }
        found.excluded.extend(excluded_by_others(seats, at, placed));
        for constraint in rules.spread.iter().filter(|one| one.is_required) {
            found.is_partial |= constraint.is_partial;
            if constraint.is_partial {
                continue;
            }
            let mut matching = occupancy.matching_in(namespace, constraint.selector.as_ref());
            let adds = usize::from(matching.contains(&at));
            matching.retain(|&other| other != at);
            let counts = occupancy.count(&matching, &constraint.topology_key);
            let hosts = seats.fleet.hosts.iter().enumerate();
            let eligible = hosts.filter(|(_, host)| unmet_node_rules(rules, host).is_none());
            let least = eligible
                .filter_map(|(place, _)| occupancy.domain(place, &constraint.topology_key))
                .map(|domain| counts.get(domain).copied().unwrap_or_default())
                .min();
            found.spread.push(SpreadState {
                topology_key: &constraint.topology_key,
                max_skew: constraint.max_skew as usize,
                least: least.unwrap_or_default(),
                counts,
                adds,
            });
        }
        found
    }

    fn none() -> Self {
        Self {
            excluded: Vec::new(),
            required: Vec::new(),
            spread: Vec::new(),
            is_partial: false,
        }
    }

    fn refusal(&self, host: &InfraNode) -> Option<&'static str> {
        let is_in = |(key, domains): &(&str, HashSet<&str>)| {
            host.labels
                .get(key)
                .is_some_and(|domain| domains.contains(domain))
        };
        if self.excluded.iter().any(is_in) {
            return Some("with VMs that anti-affinity excludes");
        }
        if !self.required.iter().all(is_in) {
            return Some("without a VM that its affinity requires");
        }
        let breaks = |spread: &SpreadState<'_>| {
            let Some(domain) = host.labels.get(spread.topology_key) else {
                return true;
            };
            let there = spread.counts.get(domain).copied().unwrap_or_default();
            (there + spread.adds).saturating_sub(spread.least) > spread.max_skew
        };
        let is_broken = self.spread.iter().any(breaks);
        is_broken.then_some("outside of its spread constraints")
    }
}

/// Domains of VMs with an anti-affinity that matches this VM.
fn excluded_by_others<'a>(
    seats: &Seats<'a>,
    at: usize,
    vm: &'a PlacedVm,
) -> Vec<(&'a str, HashSet<&'a str>)> {
    let mut excluded = Vec::new();
    for group in &seats.groups {
        for term in &group.rules.required_apart {
            let namespace = &vm.view.namespace;
            let is_named = if term.namespaces.is_empty() {
                group.namespace == namespace
            } else {
                term.namespaces.contains(namespace)
            };
            let matches = is_named
                && !term.is_partial
                && term
                    .selector
                    .as_ref()
                    .is_some_and(|selector| selector.matches(&vm.labels));
            if matches {
                let others: Vec<usize> = group
                    .members
                    .iter()
                    .copied()
                    .filter(|&other| other != at)
                    .collect();
                let domains = seats.occupancy.count(&others, &term.topology_key);
                excluded.push((&*term.topology_key, domains.into_keys().collect()));
            }
        }
    }
    excluded
}
