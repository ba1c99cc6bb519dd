//! Reads what the what-if of a drain depends on, when somebody requests it: volumes of the VMs in
//! the infra cluster, pods and PodDisruptionBudgets in the user clusters. Nothing is watched or
//! kept.
//!
//! ```text
//! virt-launcher pods of the node ─▶ claims ─▶ PersistentVolumes ─▶ where each VM may go
//! Node of each VM ─▶ its pods ─▶ claims, PodDisruptionBudgets    ─▶ what rides on each VM
//! ```
//! A right that is missing is a gap of the evidence with the command that grants it, never an error
//! of the request.

mod budgets;
mod failure;
mod limits;
mod pods;
mod riding_vm;
mod volumes;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use tokio::sync::Semaphore;
use virtfleet_collector_core::placement::{DrainEvidence, PlacedVm, PlacementFleet};
use virtfleet_wire::ids::{ClusterName, NodeName, VmKey};

use self::{
    limits::{CLUSTER_TIMEOUT, MAX_CONCURRENT_REQUESTS},
    riding_vm::RidingVm,
};
use crate::tenants::Tenants;

/// Maximum drains that are read at the same time.
const MAX_READS: usize = 2;
/// Maximum time for one drain.
const READ_TIMEOUT: Duration = Duration::from_secs(8);
/// Maximum gaps that are named.
const MAX_GAPS: usize = 20;

/// Reads the evidence for drains.
pub struct DrainReader {
    tenants: Arc<Tenants>,
    permits: Semaphore,
}

impl fmt::Debug for DrainReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainReader").finish_non_exhaustive()
    }
}

impl DrainReader {
    /// A reader that uses these clients. Without a client of the infra cluster (a folder as
    /// inventory) it reads nothing.
    pub fn new(tenants: Arc<Tenants>) -> Self {
        Self {
            tenants,
            permits: Semaphore::new(MAX_READS),
        }
    }

    /// Evidence for a drain of `host`. What cannot be read is one of its gaps.
    pub async fn read(&self, fleet: &PlacementFleet, host: &NodeName) -> DrainEvidence {
        let here: Vec<&PlacedVm> = fleet.vms.iter().filter(|vm| vm.host() == Some(host)).collect();
        if self.tenants.infra().is_none() {
            return DrainEvidence::default();
        }
        let mut evidence = DrainEvidence::default();
        let Ok(_permit) = self.permits.acquire().await else {
            return evidence;
        };
        let read = async {
            let (volumes, clusters) = tokio::join!(self.volumes(&here, host), self.clusters(&here));
            (evidence.volumes, evidence.gaps) = volumes;
            evidence.knows_volumes = true;
            for (cluster, pods, gaps) in clusters {
                evidence.clusters.insert(cluster);
                evidence.pods.extend(pods);
                evidence.gaps.extend(gaps);
            }
        };
        if tokio::time::timeout(READ_TIMEOUT, read).await.is_err() {
            let seconds = READ_TIMEOUT.as_secs();
            evidence.gaps.push(format!(
                "volumes, pods and PodDisruptionBudgets: they were not read in {seconds} s; try again"
            ));
        }
        let more = evidence.gaps.len().saturating_sub(MAX_GAPS);
        evidence.gaps.truncate(MAX_GAPS);
        if more > 0 {
            evidence
                .gaps
                .push(format!("{more} other things that could not be read"));
        }
        evidence
    }

    async fn volumes(&self, here: &[&PlacedVm], host: &NodeName) -> volumes::VmVolumes {
        let Some(client) = self.tenants.infra() else {
            return volumes::VmVolumes::default();
        };
        let vms: Vec<RidingVm> = here.iter().map(|vm| RidingVm::of(vm)).collect();
        let read = volumes::read(&client, &vms, host);
        let answer = tokio::time::timeout(CLUSTER_TIMEOUT, read).await;
        answer.unwrap_or_else(|_| (BTreeMap::new(), vec![failure::too_slow("volumes of the VMs")]))
    }

    /// Pods of the VMs of each user cluster, and gaps.
    async fn clusters(&self, here: &[&PlacedVm]) -> Vec<(ClusterName, pods::PodsOfVms, Vec<String>)> {
        let mut nodes: BTreeMap<ClusterName, BTreeSet<(NodeName, VmKey)>> = BTreeMap::new();
        for vm in here {
            if let (Some(cluster), Some(node)) = (&vm.view.cluster, &vm.view.user_node) {
                let of_cluster = nodes.entry(cluster.clone()).or_default();
                of_cluster.insert((node.clone(), vm.key()));
            }
        }
        let read = stream::iter(nodes).map(|(cluster, nodes)| async move {
            let (pods, gaps) = self.cluster(&cluster, nodes).await;
            (cluster, pods, gaps)
        });
        read.buffer_unordered(MAX_CONCURRENT_REQUESTS).collect().await
    }

    async fn cluster(
        &self,
        cluster: &ClusterName,
        nodes: BTreeSet<(NodeName, VmKey)>,
    ) -> (pods::PodsOfVms, Vec<String>) {
        let what = format!("pods and PodDisruptionBudgets of the user cluster {cluster}");
        let Some(client) = self.tenants.client(cluster) else {
            let gap = format!("{what}: it has no usable kubeconfig (virtfleetctl clusters -o wide)");
            return (BTreeMap::new(), vec![gap]);
        };
        let read = pods::read(&client, cluster, nodes);
        let answer = tokio::time::timeout(CLUSTER_TIMEOUT, read).await;
        answer.unwrap_or_else(|_| (BTreeMap::new(), vec![failure::too_slow(&what)]))
    }
}
