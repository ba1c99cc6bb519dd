//! Reconciles the conditions of one VM's Node, after its labels: with the same connection, rate
//! limit and locks.

use std::time::Duration;

use virtfleet_collector_core::node_conditions::{NodeConditionInput, plan_conditions};
use virtfleet_wire::ids::VmKey;

use super::{
    cluster_limits::ClusterLimits,
    reconcile_state::ReconcileState,
    reconciler::{LEADERSHIP_MARGIN, LabelReconciler, now},
    work_queue::Requeue,
    writer::{NodeMetadata, NodeWriter, SendError, TargetedConditions},
};

/// Delay before a Node without client, or with a patch of its labels in flight, is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl<W: NodeWriter> LabelReconciler<W> {
    /// Plans the conditions of one VM's Node and sends the patch, if there is one and this process
    /// may write. `answered` is set to whether the cluster answered, if it failed or was asked
    /// first. Never returns [`Requeue::After`], which would delay labels; [`Requeue::Forget`] for a
    /// VM without Node.
    pub(super) async fn reconcile_conditions(
        &self,
        limits: &ClusterLimits,
        key: &VmKey,
        state: &mut ReconcileState,
        answered: &mut Option<bool>,
    ) -> Requeue {
        loop {
            let Some(input) = self.condition_input(limits, key, state) else {
                self.set_condition_problem(key, None);
                return Requeue::Forget;
            };
            let Some(patch) = plan_conditions(&input) else {
                self.set_condition_problem(key, None);
                return Requeue::OnChange;
            };
            if !self.parts.settings.write || !self.leads_or_skips() {
                return Requeue::OnChange;
            }
            if let Some(wait) = state.condition_writes.wait(now()) {
                return Requeue::Recheck(wait);
            }
            let identity = input.node_uid.clone().zip(input.resource_version.clone());
            let Some((uid, resource_version)) = identity else {
                return Requeue::OnChange;
            };
            if !self.parts.writer.can_reach(&limits.cluster) {
                let max = Duration::from_secs(30);
                return Requeue::Recheck(state.condition_writes.failed(RETRY_DELAY, max, now()));
            }
            if limits.wait(1).await && self.condition_input(limits, key, state).as_ref() != Some(&input) {
                // The input changed during the wait: the old plan is not sent.
                continue;
            }
            let Some(lock) = limits.lock(&input.node) else {
                return Requeue::Recheck(RETRY_DELAY);
            };
            let targeted = TargetedConditions {
                node: input.node.clone(),
                uid,
                resource_version,
                patch,
            };
            let request = self.parts.writer.patch_conditions(&limits.cluster, &targeted);
            let (sent, outcome) = self.send(lock, request).await;
            self.parts.metrics.conditions_patched(outcome);
            let Some(sent) = sent else {
                return Requeue::Recheck(LEADERSHIP_MARGIN);
            };
            return match sent {
                Ok((metadata, conditions)) => {
                    answered.get_or_insert(true);
                    let version = metadata.resource_version.clone();
                    state.condition_writes.written(&input, version, conditions, now());
                    state.latest = Some((targeted.node, metadata, now()));
                    self.set_condition_problem(key, None);
                    Requeue::OnChange
                }
                Err(error) => self.conditions_failed(limits, key, &error, state, answered),
            };
        }
    }

    fn conditions_failed(
        &self,
        limits: &ClusterLimits,
        key: &VmKey,
        error: &SendError,
        state: &mut ReconcileState,
        answered: &mut Option<bool>,
    ) -> Requeue {
        let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
        let (min, max) = match error {
            // The watch reports the new version.
            SendError::Conflict => (millis(200), seconds(10)),
            SendError::Gone => return Requeue::OnChange,
            // The right to change labels may be there: the cluster works.
            SendError::Denied(_) | SendError::Refused(_) => (seconds(1), seconds(600)),
            SendError::Unreachable(_) | SendError::NoClient => (millis(500), seconds(30)),
        };
        let is_denied = matches!(error, SendError::Denied(_) | SendError::Refused(_));
        if is_denied {
            self.set_condition_problem(key, Some((limits, error)));
        } else if error.is_cluster_failure() {
            *answered = Some(false);
        }
        if *error != SendError::Conflict {
            self.log_failed(limits, error);
        }
        Requeue::Recheck(state.condition_writes.failed(min, max, now()))
    }

    fn condition_input(
        &self,
        limits: &ClusterLimits,
        key: &VmKey,
        state: &mut ReconcileState,
    ) -> Option<NodeConditionInput> {
        let mut input = self.parts.fleet.read(|index| index.node_condition_input(key))?;
        if input.cluster != limits.cluster {
            return None;
        }
        // First, because it compares the watched version.
        state.condition_writes.overlay(&mut input, now());
        // A patch of the labels has just changed the version.
        let is_same = |latest: &&NodeMetadata| latest.uid == input.node_uid;
        let latest = state.latest.as_ref().filter(|(node, ..)| *node == input.node);
        let latest = latest.map(|(_, latest, _)| latest).filter(is_same);
        if let Some(latest) = latest {
            input.resource_version = newer(input.resource_version, latest.resource_version.as_deref());
        }
        Some(input)
    }

    fn set_condition_problem(&self, key: &VmKey, problem: Option<(&ClusterLimits, &SendError)>) {
        let problem = problem.map(|(limits, error)| (&limits.cluster, error.to_string()));
        if let Some(findings) = self.condition_problems.set(key, problem) {
            let fleet = &self.parts.fleet;
            fleet.change(|index| index.set_node_condition_findings(findings));
        }
    }

    /// Removes the findings about conditions: another process leads.
    pub(super) fn clear_condition_problems(&self) {
        if self.condition_problems.clear() {
            let fleet = &self.parts.fleet;
            fleet.change(|index| index.set_node_condition_findings(Vec::new()));
        }
    }
}

/// The newer one of two versions.
fn newer(watched: Option<String>, answered: Option<&str>) -> Option<String> {
    let number = |text: &str| text.parse::<u64>().ok();
    let is_newer = watched.as_deref().and_then(number) < answered.and_then(number);
    if is_newer {
        answered.map(str::to_owned)
    } else {
        watched
    }
}
