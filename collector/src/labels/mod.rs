//! Node writer: applies the label planner's decisions to the Nodes of user clusters, and writes the
//! conditions that a `UserCluster` requests.
//!
//! ```text
//! changed VMs ─▶ run ─┬▶ worker of cluster a: queue ─▶ reconcile: plan, evidence, patch ─▶ API server of a
//!    new leader ──────┘  worker of cluster b: …               └─▶ LabelStatusStore, Events, metrics
//! ```
//! Only the leader sends patches, of metadata or of its own conditions, and only for the Node UID
//! and version of the plan. Each user cluster has its own worker, so that a slow or dead cluster
//! delays no other.

mod clock;
mod cluster_limits;
mod cluster_worker;
mod condition_limits;
mod condition_problems;
mod condition_reconciler;
mod confirmation;
mod draft;
mod evidence_reader;
mod label_events;
mod metrics;
mod ownership_conflicts;
mod rate_limit;
mod reconcile_state;
mod reconciler;
mod send_error;
mod status_store;
#[cfg(test)]
mod tests;
mod trouble;
mod work_queue;
mod writer;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{sync::mpsc, task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::index::FleetIndex;
use virtfleet_wire::ids::{ClusterName, VmKey};

use self::{cluster_worker::ClusterWorker, work_queue::WorkQueue};
pub use self::{
    confirmation::ConfirmationDelays,
    metrics::{LabelMetrics, drift_series},
    reconciler::{LabelReconciler, PlanFn, ReconcilerSettings},
    status_store::{Drift, LabelStatus, LabelStatusStore, PolicyTally},
    trouble::summary,
    writer::{
        Clients, FIELD_MANAGER, KubeNodes, NodeMetadata, NodeWriter, SendError, TargetedConditions,
        TargetedPatch,
    },
};
pub(crate) use self::{draft::NO_WRITES, rate_limit::TokenBucket, reconciler::ReconcilerParts};
use crate::fleet::FleetRead as _;

/// Interval at which changed conditions of VMs are queued, and findings about labels are made.
/// Conditions are held for 30 seconds and longer, so this delays them little.
const CONDITION_INTERVAL: Duration = Duration::from_secs(1);

/// Reconciles the labels of all Nodes until `stop`. `changes` has the VMs whose labels may have to
/// change. Nothing is planned before the inventory was read completely.
pub async fn run<W: NodeWriter>(
    reconciler: Arc<LabelReconciler<W>>,
    mut changes: mpsc::Receiver<Vec<VmKey>>,
    stop: CancellationToken,
) {
    let mut workers = ClusterWorkers {
        all: HashMap::new(),
        cluster_of: HashMap::new(),
        running: JoinSet::new(),
        reconciler: Arc::clone(&reconciler),
    };
    let parts = &reconciler.parts;
    let mut revisions = parts.fleet.revisions();
    let mut leadership = parts.write_access.changes();
    let mut labels = parts.statuses.changes();
    let mut condition_ticks = tokio::time::interval(CONDITION_INTERVAL);
    condition_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut synced = false;
    let mut led = false;
    loop {
        let leads = parts.write_access.leads();
        let now_synced = parts.fleet.read(FleetIndex::synced);
        let catch_up = leads && (reconciler.skipped_as_standby.swap(false, Ordering::Relaxed) || !led);
        if now_synced && (!synced || catch_up) {
            // Every VM once: those known before, and those that the previous leader did not finish.
            workers.push(&parts.fleet.read(FleetIndex::written));
        }
        if led && !leads {
            reconciler.clear_condition_problems();
            parts.fleet.change(|index| index.set_label_findings(Vec::new()));
        }
        (synced, led) = (now_synced, leads);
        // A fixed order, so that a simulation with the same seed does the same. Changes are last:
        // they may be ready all the time.
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Some(ended) = workers.running.join_next() => {
                if let Err(error) = ended && error.is_panic() {
                    std::panic::resume_unwind(error.into_panic());
                }
            }
            Ok(()) = leadership.changed() => {}
            Ok(()) = revisions.changed(), if !synced => {}
            _ = condition_ticks.tick() => {
                let vms = parts.fleet.change(FleetIndex::take_changed_conditions);
                if leads && !vms.is_empty() {
                    workers.push(&vms);
                }
                if leads && labels.has_changed().unwrap_or(false) {
                    labels.borrow_and_update();
                    let found = trouble::findings(&parts.statuses.all());
                    parts.fleet.change(|index| index.set_label_findings(found));
                }
            }
            batch = changes.recv() => match batch {
                Some(keys) => workers.push(&keys),
                None => return,
            },
        }
    }
}

/// The workers of all user clusters that have VMs.
struct ClusterWorkers<W> {
    reconciler: Arc<LabelReconciler<W>>,
    all: HashMap<ClusterName, WorkerHandle>,
    cluster_of: HashMap<VmKey, ClusterName>,
    running: JoinSet<()>,
}

struct WorkerHandle {
    queue: Arc<WorkQueue>,
    vms: usize,
    stop: CancellationToken,
}

impl<W: NodeWriter> ClusterWorkers<W> {
    /// Queues each VM at the worker of its cluster, and a VM that left a cluster also at its old
    /// worker.
    fn push(&mut self, keys: &[VmKey]) {
        let mut batches: BTreeMap<ClusterName, Vec<VmKey>> = BTreeMap::new();
        for key in keys {
            let parts = &self.reconciler.parts;
            let new = parts.fleet.read(|index| index.written_cluster(key));
            let old = match &new {
                Some(new) => self.cluster_of.insert(key.clone(), new.clone()),
                None => self.cluster_of.remove(key),
            };
            if new.is_none() {
                parts.statuses.remove(key);
            }
            if new != old {
                self.count(new.as_ref(), old.as_ref());
            }
            for cluster in new
                .iter()
                .chain(old.iter().filter(|old| Some(*old) != new.as_ref()))
            {
                batches.entry(cluster.clone()).or_default().push(key.clone());
            }
        }
        for (cluster, keys) in batches {
            if let Some(handle) = self.all.get(&cluster) {
                handle.queue.push(&keys);
            }
        }
        self.all.retain(|_, handle| {
            if handle.vms == 0 {
                handle.stop.cancel();
            }
            handle.vms > 0
        });
    }

    /// Counts a VM that moved from one cluster to another; starts the worker of a new cluster.
    fn count(&mut self, new: Option<&ClusterName>, old: Option<&ClusterName>) {
        if let Some(handle) = old.and_then(|old| self.all.get_mut(old)) {
            handle.vms = handle.vms.saturating_sub(1);
        }
        let Some(cluster) = new else { return };
        if let Some(handle) = self.all.get_mut(cluster) {
            handle.vms += 1;
            return;
        }
        let handle = WorkerHandle {
            queue: Arc::default(),
            vms: 1,
            stop: CancellationToken::new(),
        };
        let worker = ClusterWorker::new(
            Arc::clone(&self.reconciler),
            cluster.clone(),
            Arc::clone(&handle.queue),
        );
        self.running.spawn(worker.run(handle.stop.clone()));
        self.all.insert(cluster.clone(), handle);
    }
}
