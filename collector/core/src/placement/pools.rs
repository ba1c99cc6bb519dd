//! How the VMs of a worker pool are spread over zones and infra nodes.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::{ClusterName, Namespace, NodeName};

use super::{fit::unmet_node_rules, fleet::PlacementFleet};
use crate::facts::InfraNode;

/// Labels that name a VM's pool, the first one that a VM has: KKP's machine-controller, Cluster
/// API, Gardener.
const POOL_LABELS: [&str; 4] = [
    "md",
    "cluster.x-k8s.io/deployment-name",
    "worker.gardener.cloud/pool",
    "mcm.gardener.cloud/machineclass",
];

/// How a pool is spread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolSpread {
    /// Namespace of its VMs.
    pub namespace: Namespace,
    /// User cluster of its VMs.
    pub cluster: Option<ClusterName>,
    /// Its name: the value of the label.
    pub pool: String,
    /// The label that names it.
    pub label: String,
    /// VMs that run on an infra node.
    pub vms: usize,
    /// VMs by zone, including zones that could have one and have none.
    pub zones: BTreeMap<String, usize>,
    /// Difference between the zones with most and with fewest VMs.
    pub zone_skew: usize,
    /// Infra nodes with a VM of it.
    pub hosts: usize,
    /// VMs on the infra node that has most of them.
    pub most_on_one_host: usize,
    /// That infra node.
    pub fullest_host: Option<NodeName>,
}

/// All pools, by namespace, user cluster and name.
pub(super) fn pools(fleet: &PlacementFleet) -> Vec<PoolSpread> {
    type PoolKey<'a> = (&'a Namespace, Option<&'a ClusterName>, &'static str, &'a str);
    let mut members = BTreeMap::<PoolKey<'_>, Vec<usize>>::new();
    for (at, vm) in fleet.vms.iter().enumerate().filter(|(_, vm)| vm.host().is_some()) {
        let named = POOL_LABELS
            .iter()
            .find_map(|label| Some((*label, vm.labels.get(label)?)));
        if let Some((label, pool)) = named {
            let key = (&vm.view.namespace, vm.view.cluster.as_ref(), label, pool);
            members.entry(key).or_default().push(at);
        }
    }
    let spread = |((namespace, cluster, label, pool), members): (PoolKey<'_>, Vec<usize>)| {
        let vms = || members.iter().filter_map(|&at| fleet.vms.get(at));
        let rules = vms().next().map(|vm| &*vm.scheduling);
        let allowed = |host: &&InfraNode| rules.is_none_or(|rules| unmet_node_rules(rules, host).is_none());
        let zones = fleet.hosts.iter().filter(allowed).filter_map(InfraNode::zone);
        let zones: BTreeSet<&str> = zones.collect();
        let mut zones: BTreeMap<String, usize> = zones.into_iter().map(|zone| (zone.to_owned(), 0)).collect();
        let mut hosts = BTreeMap::<&NodeName, usize>::new();
        for vm in vms() {
            if let Some(zone) = &vm.view.zone {
                *zones.entry(zone.clone()).or_default() += 1;
            }
            if let Some(host) = vm.host() {
                *hosts.entry(host).or_default() += 1;
            }
        }
        let most = zones.values().max().copied().unwrap_or_default();
        let least = zones.values().min().copied().unwrap_or_default();
        // The first one by name of equally full ones.
        let fullest = hosts.iter().rev().max_by_key(|(_, vms)| **vms);
        PoolSpread {
            namespace: namespace.clone(),
            cluster: cluster.cloned(),
            pool: pool.to_owned(),
            label: label.to_owned(),
            vms: members.len(),
            zone_skew: most - least,
            zones,
            hosts: hosts.len(),
            most_on_one_host: fullest.map_or(0, |(_, vms)| *vms),
            fullest_host: fullest.map(|(host, _)| (*host).clone()),
        }
    };
    members.into_iter().map(spread).collect()
}
