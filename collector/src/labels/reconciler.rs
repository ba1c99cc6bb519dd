//! Reconciles one VM's labels: plans, patches the Node, and decides when to run again.

pub(super) use super::clock::now;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use virtfleet_collector_core::labels::{
    evidence::Evidence,
    plan::{LabelInput, NodePlan},
};
use virtfleet_wire::ids::VmKey;

use super::{
    cluster_limits::{ClusterLimits, NodeLock},
    condition_problems::ConditionProblems,
    confirmation::ConfirmationDelays,
    metrics::{LabelMetrics, LogOnce},
    reconcile_state::ReconcileState,
    status_store::LabelStatusStore,
    work_queue::Requeue,
    writer::{NodeWriter, SendError, TargetedPatch},
};
use crate::{events::EventRecorder, fleet::Fleet, leader::WriteAccess};

/// Time after a patch in which changes of the same Node are merged; the last of them is still
/// written within a second.
const COALESCE_WINDOW: Duration = Duration::from_millis(500);
/// A request starts only if the term as leader lasts at least this much longer.
pub(super) const LEADERSHIP_MARGIN: Duration = Duration::from_secs(1);
/// Maximum retries after consecutive conflicts (409) in one reconcile run.
const MAX_CONFLICT_RETRIES: u32 = 3;

/// Settings of the label writer.
#[derive(Debug, Clone, Copy)]
pub struct ReconcilerSettings {
    /// Whether Nodes are patched at all.
    pub write: bool,
    /// Maximum requests to one user cluster per second.
    pub per_second: u32,
    /// Maximum concurrent requests to one user cluster.
    pub parallel: usize,
    /// Interval between reconcile runs for a key that waits for safety.
    pub recheck: Duration,
    /// Time for which a changed label of an infra node must be stable before Nodes follow.
    pub confirm: ConfirmationDelays,
}

/// The planner: [`virtfleet_collector_core::labels::plan::plan`], or another one in tests.
pub type PlanFn = fn(&LabelInput, Option<&Evidence>) -> NodePlan;

/// What a [`LabelReconciler`] works with.
pub(crate) struct ReconcilerParts<W> {
    pub(crate) fleet: Arc<Fleet>,
    /// Sends the requests to user clusters.
    pub(crate) writer: W,
    pub(crate) write_access: WriteAccess,
    /// Receives the status of each VM's labels.
    pub(crate) statuses: Arc<LabelStatusStore>,
    pub(crate) events: EventRecorder,
    /// Counts requests.
    pub(crate) metrics: LabelMetrics,
    pub(crate) settings: ReconcilerSettings,
    pub(crate) plan: PlanFn,
}

/// What all reconcile runs share. Share it as `Arc<LabelReconciler>`; start it with
/// [`run`](super::run).
pub struct LabelReconciler<W> {
    pub(super) parts: ReconcilerParts<W>,
    pub(super) log_once: LogOnce,
    pub(super) condition_problems: ConditionProblems,
    /// A request was skipped because this process did not lead. A term may end and start again
    /// between two checks of the leadership, so the next leader checks this too and reconciles
    /// everything.
    pub(super) skipped_as_standby: AtomicBool,
}

#[derive(Debug)]
pub(super) struct ReconcileResult {
    pub(super) requeue: Requeue,
    pub(super) state: ReconcileState,
    /// Whether the cluster answered; none when no request was sent.
    pub(super) answered: Option<bool>,
}

impl<W: NodeWriter> LabelReconciler<W> {
    /// A reconciler for [`run`](super::run).
    pub(crate) fn new(parts: ReconcilerParts<W>) -> Arc<Self> {
        Arc::new(Self {
            parts,
            log_once: LogOnce::default(),
            condition_problems: ConditionProblems::default(),
            skipped_as_standby: AtomicBool::new(false),
        })
    }

    /// Plans the labels of one VM, then the conditions of its Node, and sends the patches, if there
    /// are any and this process may write.
    pub(super) async fn reconcile(
        &self,
        limits: &ClusterLimits,
        key: &VmKey,
        mut state: ReconcileState,
    ) -> ReconcileResult {
        let mut answered = None;
        let requeue = self.steps(limits, key, &mut state, &mut answered).await;
        if !matches!(requeue, Requeue::After(_)) && state.label_wait(now()).is_none() {
            state.retries = None;
        }
        let is_down = answered == Some(false);
        let conditions = if is_down {
            Requeue::Forget
        } else {
            self.reconcile_conditions(limits, key, &mut state, &mut answered)
                .await
        };
        let requeue = requeue.and(conditions);
        ReconcileResult {
            requeue,
            state,
            answered,
        }
    }

    async fn steps(
        &self,
        limits: &ClusterLimits,
        key: &VmKey,
        state: &mut ReconcileState,
        answered: &mut Option<bool>,
    ) -> Requeue {
        let mut has_token = false;
        let mut written = false;
        let mut conflict_retries = 0;
        loop {
            let Some(mut draft) = self.draft(limits, key, state).await else {
                return Requeue::Forget;
            };
            if draft.requested {
                *answered = Some(!draft.failed.as_ref().is_some_and(SendError::is_cluster_failure));
            }
            let requeue = |state: &mut ReconcileState| match (&draft.failed, draft.recheck) {
                (Some(error), _) => Self::retry_after(error, state),
                (None, _) if draft.term_too_short => Requeue::Recheck(LEADERSHIP_MARGIN),
                (None, Some(pause)) => Requeue::Recheck(pause),
                (None, None) if written => Requeue::OnChangeAfter(COALESCE_WINDOW),
                (None, None) => Requeue::OnChange,
            };
            let may_write = self.parts.settings.write && !draft.input.suspended;
            let Some(patch) = draft.patch.take().filter(|_| may_write && self.leads_or_skips()) else {
                return requeue(state);
            };
            if let Some(wait) = state.label_wait(now()) {
                return Requeue::Recheck(wait);
            }
            if written {
                // A patch was just sent: later changes are merged into the next one.
                return Requeue::After(COALESCE_WINDOW);
            }
            let identity = draft
                .input
                .node_uid
                .clone()
                .zip(draft.input.resource_version.clone());
            let Some((uid, resource_version)) = identity else {
                return Requeue::OnChange;
            };
            if !self.parts.writer.can_reach(&limits.cluster) {
                let error = SendError::NoClient.to_string();
                self.parts.statuses.set_error(key, Some(error));
                let pause = state.next_pause(Duration::from_secs(2), Duration::from_secs(30));
                return Requeue::After(pause);
            }
            if !std::mem::replace(&mut has_token, true)
                && limits.wait(1).await
                && self.input(limits, key).map(|input| state.overlay(input, now()))
                    != Some(draft.input.clone())
            {
                // The input changed during the wait: the old plan is not sent.
                continue;
            }
            let Some(lock) = limits.lock(&draft.input.node) else {
                return Requeue::After(COALESCE_WINDOW);
            };
            let targeted = TargetedPatch {
                node: draft.input.node.clone(),
                uid,
                resource_version,
                patch,
            };
            let request = self.parts.writer.patch(&limits.cluster, &targeted);
            let (sent, outcome) = self.send(lock, request).await;
            self.parts.metrics.patched(outcome);
            let Some(sent) = sent else {
                return Requeue::Recheck(LEADERSHIP_MARGIN);
            };
            *answered = Some(!sent.as_ref().is_err_and(SendError::is_cluster_failure));
            match sent {
                Ok(latest) => {
                    state.conflicts.written(&targeted.patch, now());
                    state.retries = None;
                    state.labels_not_before = None;
                    self.record_moves(key, &draft);
                    state.latest = Some((targeted.node, latest, now()));
                    self.parts.statuses.set_written(key);
                    written = true;
                }
                Err(SendError::Conflict) if conflict_retries < MAX_CONFLICT_RETRIES => {
                    conflict_retries += 1;
                    has_token = false;
                    if let Some(requeue) = self.read_after_conflict(limits, key, &targeted, state).await {
                        return requeue;
                    }
                }
                Err(SendError::Gone) => return Requeue::OnChange,
                Err(error) => return self.failed(limits, key, &error, state),
            }
        }
    }

    /// Sends a patch of the locked Node, if the term as leader lasts long enough: the answer, if
    /// any, and its class as the value of a metric's label.
    pub(super) async fn send<T>(
        &self,
        lock: NodeLock<'_>,
        request: impl Future<Output = Result<T, SendError>>,
    ) -> (Option<Result<T, SendError>>, &'static str) {
        let sent = self.parts.write_access.within(LEADERSHIP_MARGIN, request).await;
        drop(lock);
        let outcome = match &sent {
            None => "cut",
            Some(Ok(_)) => "ok",
            Some(Err(error)) => error.as_str(),
        };
        (sent, outcome)
    }

    /// Reads the Node after a conflict. Returns when to run again if it cannot be read.
    async fn read_after_conflict(
        &self,
        limits: &ClusterLimits,
        key: &VmKey,
        targeted: &TargetedPatch,
        state: &mut ReconcileState,
    ) -> Option<Requeue> {
        let _ = limits.wait(1).await;
        let get = self.parts.writer.get(&limits.cluster, &targeted.node);
        match self.parts.write_access.within(LEADERSHIP_MARGIN, get).await {
            Some(Ok(latest)) if Some(&targeted.uid) == latest.uid.as_ref() => {
                state.latest = Some((targeted.node.clone(), latest, now()));
                None
            }
            // Another Node of the same name: the watch will report it.
            Some(Ok(_) | Err(SendError::Gone)) => Some(Requeue::OnChange),
            Some(Err(error)) => Some(self.failed(limits, key, &error, state)),
            None => Some(Requeue::Recheck(LEADERSHIP_MARGIN)),
        }
    }

    /// Whether this process leads. If it does not, the next term starts with a reconcile run for
    /// every VM.
    pub(super) fn leads_or_skips(&self) -> bool {
        let leads = self.parts.write_access.leads();
        if !leads {
            self.skipped_as_standby.store(true, Ordering::Relaxed);
        }
        leads
    }

    fn failed(
        &self,
        limits: &ClusterLimits,
        key: &VmKey,
        error: &SendError,
        state: &mut ReconcileState,
    ) -> Requeue {
        self.parts.statuses.set_error(key, Some(error.to_string()));
        self.log_failed(limits, error);
        Self::retry_after(error, state)
    }

    pub(super) fn log_failed(&self, limits: &ClusterLimits, error: &SendError) {
        if self.log_once.first(&limits.cluster, error.as_str()) {
            tracing::warn!(cluster = %limits.cluster, %error, "a request to the user cluster failed; it will be retried");
        }
    }

    fn retry_after(error: &SendError, state: &mut ReconcileState) -> Requeue {
        let seconds = Duration::from_secs;
        let (min, max) = match error {
            SendError::Refused(_) => (seconds(30), seconds(600)),
            // An API server that has just started denies every request until it has loaded its
            // roles.
            SendError::Denied(_) => (Duration::from_millis(500), seconds(60)),
            _ => (Duration::from_millis(500), seconds(30)),
        };
        let pause = state.next_pause(min, max);
        if matches!(error, SendError::Refused(_)) {
            // It concerns the labels of this Node only.
            state.labels_not_before = Some(now() + pause);
            return Requeue::Recheck(pause);
        }
        Requeue::After(pause)
    }
}
