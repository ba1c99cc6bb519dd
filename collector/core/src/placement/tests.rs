//! Tables of fleets.

mod drains;
mod rules;

use std::sync::Arc;

use virtfleet_wire::ids::NodeName;

use super::*;
use crate::{
    dial::DialRules,
    facts::{Allocatable, Fact, InfraNode, InventoryEvent, Labels, Migration, Vmi},
    index::FleetIndex,
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
    scheduling::{
        EvictionStrategy, NodeComparison, NodeExpression, NodeTerm, OperatorOfToleration, PodTerm,
        ResourceAmounts, Scheduling, SpreadConstraint, Taint, TaintEffect, Toleration, WeightedNodeTerm,
        WeightedPodTerm,
    },
    selector::Selector,
    store::tests::{infra_node, key, labels, launcher, vmi},
};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

fn amounts(cpu: u64, gibibytes: u64) -> ResourceAmounts {
    ResourceAmounts {
        cpu_milli: cpu * 1000,
        memory_bytes: gibibytes << 30,
    }
}

/// A host with 8 CPUs and 32 GiB.
fn host(name: &str, zone: &str) -> InfraNode {
    let mut host = infra_node(name, zone);
    host.labels.insert(HOSTNAME.into(), name.into());
    host.allocatable = Some(Allocatable {
        resources: amounts(8, 32),
        pods: Some(110),
    });
    host
}

fn rules() -> Scheduling {
    Scheduling {
        eviction: EvictionStrategy::LiveMigrate,
        requests: amounts(2, 8),
        vcpus: Some(4),
        ..Scheduling::default()
    }
}

/// A live-migratable VM of the pool `a`.
fn vm(name: &str, on: &str, rules: &Scheduling) -> Vmi {
    let mut vm = vmi("ns", name);
    vm.node = Some(on.parse().unwrap());
    vm.labels = labels(&[("md", "a"), ("name", name)]);
    vm.scheduling = Arc::new(rules.clone());
    vm.conditions = migratable(ReportedStatus::True);
    vm
}

fn migratable(status: ReportedStatus) -> ReportedConditions {
    let why = (status == ReportedStatus::False).then_some("HostDisk");
    ReportedConditions::new([ReportedCondition::new("LiveMigratable", status, why, None)])
}

fn index(hosts: &[InfraNode], vms: &[Vmi]) -> FleetIndex {
    let mut index = FleetIndex::new(DialRules::default());
    index.apply(InventoryEvent::Init);
    for host in hosts {
        index.apply(InventoryEvent::Apply(Fact::InfraNode(host.clone())));
    }
    for vm in vms {
        index.apply(InventoryEvent::Apply(Fact::Vmi(Box::new(vm.clone()))));
    }
    index.apply(InventoryEvent::Synced);
    index
}

fn fleet(hosts: &[InfraNode], vms: &[Vmi]) -> PlacementFleet {
    index(hosts, vms).placement_fleet()
}

fn name(text: &str) -> NodeName {
    text.parse().unwrap()
}

fn select(pairs: &[(&str, &str)]) -> Selector {
    Selector {
        match_labels: labels(pairs),
        match_expressions: Vec::new(),
    }
}

fn term(key: &str, pairs: &[(&str, &str)]) -> PodTerm {
    PodTerm {
        selector: Some(select(pairs)),
        namespaces: Box::default(),
        topology_key: key.into(),
        is_partial: false,
    }
}

fn in_zone(zone: &str) -> NodeTerm {
    NodeTerm(Box::new([NodeExpression {
        key: ZONE.into(),
        operator: NodeComparison::In,
        values: Box::new([zone.into()]),
        is_field: false,
    }]))
}

fn spread(key: &str, max_skew: u32, is_required: bool) -> SpreadConstraint {
    SpreadConstraint {
        max_skew,
        topology_key: key.into(),
        is_required,
        selector: Some(select(&[("md", "a")])),
        is_partial: false,
    }
}
