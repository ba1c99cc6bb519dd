//! Rules, requests and capacities for the fleet of the tests: every VM requests 2 CPUs and 4 GiB of
//! a host with 8 CPUs and 32 GiB, and the second one must be in a zone without host.

use std::sync::Arc;

use virtfleet_collector_core::{
    facts::{Allocatable, InfraNode, Labels},
    placement::{PlacedVm, PlacementFleet},
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
    scheduling::{EvictionStrategy, ResourceAmounts, Scheduling},
    view::{FleetSnapshot, HostView},
};

fn amounts(cpu: u64, gibibytes: u64) -> ResourceAmounts {
    ResourceAmounts {
        cpu_milli: cpu * 1000,
        memory_bytes: gibibytes << 30,
    }
}

fn host(host: &HostView) -> InfraNode {
    let ready = ReportedStatus::of(if host.ready == Some(true) { "True" } else { "False" });
    let zone = host.zone.as_deref().unwrap_or_default();
    InfraNode {
        name: host.name.clone(),
        uid: None,
        labels: Labels::from_iter([("topology.kubernetes.io/zone", zone)]),
        ready: host.ready,
        conditions: ReportedConditions::new([ReportedCondition::new(
            "Ready",
            ready,
            Some("KubeletReady"),
            None,
        )]),
        reported_ms: None,
        unschedulable: host.cordoned,
        taints: Vec::new(),
        allocatable: Some(Allocatable {
            resources: amounts(8, 32),
            pods: Some(110),
        }),
    }
}

/// Hosts and VMs of a snapshot.
pub(super) fn of(fleet: &FleetSnapshot) -> PlacementFleet {
    let vms = fleet.vms.values().filter(|vm| vm.uid.is_some()).enumerate();
    let vm = |(number, vm): (usize, &Arc<_>)| {
        let selector = if number == 1 {
            Box::from([("topology.kubernetes.io/zone".into(), "eu-z".into())])
        } else {
            Box::default()
        };
        PlacedVm {
            view: Arc::clone(vm),
            labels: Labels::from_iter([("md", "pool-1")]),
            scheduling: Arc::new(Scheduling {
                node_selector: selector,
                eviction: [EvictionStrategy::LiveMigrate, EvictionStrategy::External][number % 2],
                vcpus: Some(4),
                ..Scheduling::default()
            }),
            requests: amounts(2, 4),
            is_estimated: number == 0,
            live_migratable: Some(true),
            not_migratable: None,
            migration: None,
            eviction_requested: false,
        }
    };
    PlacementFleet {
        hosts: fleet.hosts.iter().filter(|host| host.known).map(host).collect(),
        vms: vms.map(vm).collect(),
        partial: fleet.partial,
    }
}
