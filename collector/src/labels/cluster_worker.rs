//! Worker of one user cluster, with its own queue, rate limit, parallelism and circuit breaker, so
//! that it never waits for another cluster.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::task::{self, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use virtfleet_wire::ids::{ClusterName, VmKey};

use super::{
    cluster_limits::ClusterLimits,
    rate_limit::CircuitBreaker,
    reconcile_state::ReconcileState,
    reconciler::{LabelReconciler, ReconcileResult, now},
    work_queue::{Requeue, WorkQueue},
    writer::NodeWriter,
};

/// Delay before a VM whose reconcile run panicked is reconciled again.
const RETRY_AFTER_PANIC: Duration = Duration::from_mins(1);

/// Reconciles the VMs of one user cluster.
pub(super) struct ClusterWorker<W> {
    reconciler: Arc<LabelReconciler<W>>,
    queue: Arc<WorkQueue>,
    limits: Arc<ClusterLimits>,
    breaker: CircuitBreaker,
    states: HashMap<VmKey, ReconcileState>,
    running: JoinSet<(VmKey, ReconcileResult)>,
    running_vms: HashMap<task::Id, VmKey>,
}

impl<W: NodeWriter> ClusterWorker<W> {
    pub(super) fn new(
        reconciler: Arc<LabelReconciler<W>>,
        cluster: ClusterName,
        queue: Arc<WorkQueue>,
    ) -> Self {
        let limits = ClusterLimits::new(cluster, reconciler.parts.settings.per_second);
        Self {
            reconciler,
            queue,
            limits: Arc::new(limits),
            breaker: CircuitBreaker::new(),
            states: HashMap::new(),
            running: JoinSet::new(),
            running_vms: HashMap::new(),
        }
    }

    /// Runs until `stop`.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            let wake = self.start_due();
            // A fixed order, so that a simulation with the same seed does the same.
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = self.running.join_next_with_id() => self.ended(ended),
                () = self.queue.changed() => {}
                () = tokio::time::sleep_until(wake.unwrap_or_else(now).into()), if wake.is_some() => {}
            }
        }
        let metrics = &self.reconciler.parts.metrics;
        metrics.remove_cluster(&self.limits.cluster);
    }

    /// Starts the reconcile runs that are due, within the limits. Returns when the next one is due.
    fn start_due(&mut self) -> Option<std::time::Instant> {
        let paused_until = self.breaker.not_before().filter(|until| *until > now());
        let parts = &self.reconciler.parts;
        let max_running = self.breaker.max_parallel(parts.settings.parallel.max(1));
        let queue = Arc::clone(&self.queue);
        let mut queue = queue.lock();
        parts.metrics.queue(&self.limits.cluster, queue.len());
        if paused_until.is_some() || self.breaker.is_open() {
            // Plans are up to date also while the cluster does not answer.
            for key in queue.take_pushed() {
                self.reconciler.plan_without_requests(&self.limits, &key);
            }
        }
        if let Some(until) = paused_until {
            return Some(until).filter(|_| queue.next_due().is_some());
        }
        while self.running.len() < max_running {
            let Some(key) = queue.pop(now()) else {
                return queue.next_due();
            };
            let state = self.states.remove(&key).unwrap_or_default();
            let (reconciler, limits, vm) = (
                Arc::clone(&self.reconciler),
                Arc::clone(&self.limits),
                key.clone(),
            );
            let run = async move {
                let result = reconciler.reconcile(&limits, &vm, state).await;
                (vm, result)
            };
            let id = self.running.spawn(run).id();
            self.running_vms.insert(id, key);
        }
        None
    }

    fn ended(&mut self, ended: Result<(task::Id, (VmKey, ReconcileResult)), JoinError>) {
        let (key, result) = match ended {
            Ok((id, (key, result))) => {
                self.running_vms.remove(&id);
                (key, result)
            }
            Err(error) => {
                let Some(key) = self.running_vms.remove(&error.id()) else {
                    return;
                };
                tracing::error!(vm = %key, %error, "reconciling a VM's labels panicked; it will be retried");
                let result = ReconcileResult {
                    requeue: Requeue::After(RETRY_AFTER_PANIC),
                    state: ReconcileState::default(),
                    answered: None,
                };
                (key, result)
            }
        };
        let mut queue = self.queue.lock();
        match result.answered {
            Some(false) => self.breaker.failed(now()),
            Some(true) => {
                if self.breaker.is_open() {
                    queue.make_all_due(now());
                }
                self.breaker.answered();
                if self.reconciler.log_once.clear(&self.limits.cluster) {
                    tracing::info!(cluster = %self.limits.cluster, "the user cluster answers again");
                }
            }
            None => {}
        }
        if result.requeue != Requeue::Forget {
            self.states.insert(key.clone(), result.state);
        }
        queue.finish(&key, result.requeue, now());
    }
}
