//! Plans the labels of one VM's Node: with evidence where the plan needs it, and without what is
//! not confirmed or is contested.

use std::{collections::BTreeSet, time::Duration};

use virtfleet_collector_core::labels::{
    evidence::Evidence,
    plan::{Decision, LabelInput, NodePatch, NodePlan, Reason},
};
use virtfleet_wire::ids::VmKey;

use super::{
    cluster_limits::ClusterLimits,
    reconcile_state::ReconcileState,
    reconciler::{LEADERSHIP_MARGIN, LabelReconciler, now},
    status_store::{self, LabelStatus},
    writer::{NodeWriter, SendError},
};

/// Tokens of the rate limit for reading evidence of one Node: it takes that many requests.
const EVIDENCE_TOKENS: u32 = 3;

/// Why labels are not written, where no request has failed.
const NO_ANSWER: &str = "the user cluster does not answer";
/// The same for all Nodes.
pub(crate) const NO_WRITES: &str = "the setting labels.write is false";

/// Keys that another writer keeps changing.
#[derive(Debug, Default)]
struct Contested {
    /// They are not written for a while.
    keys: BTreeSet<String>,
    /// They were contested lately.
    lately: BTreeSet<String>,
}

/// A plan that is not sent yet.
pub(super) struct Draft {
    pub(super) input: LabelInput,
    pub(super) patch: Option<NodePatch>,
    pub(super) decisions: Vec<Decision>,
    /// Time until the next reconcile run, if the plan waits for safety, for the end of an ownership
    /// conflict or for the confirmation of a change.
    pub(super) recheck: Option<Duration>,
    /// Why the evidence could not be read.
    pub(super) failed: Option<SendError>,
    /// Whether evidence was requested.
    pub(super) requested: bool,
    /// Whether the term as leader ended too soon to read the evidence.
    pub(super) term_too_short: bool,
}

impl<W: NodeWriter> LabelReconciler<W> {
    /// Plans for a VM without any request and stores the status: for a cluster that does not
    /// answer.
    pub(super) fn plan_without_requests(&self, limits: &ClusterLimits, key: &VmKey) {
        if let Some(input) = self.input(limits, key) {
            let plan = (self.parts.plan)(&input, None);
            let before = self.parts.statuses.get(key);
            let is_open = plan.patch.is_some() || plan.needs_evidence;
            let error = before.as_ref().and_then(|status| status.error.clone());
            let error = error.or_else(|| is_open.then(|| NO_ANSWER.to_owned()));
            let lately = before.map(|status| status.contested_lately.clone());
            let contested = Contested {
                lately: lately.unwrap_or_default(),
                ..Contested::default()
            };
            self.store_status(key, &input, plan, error, contested);
        }
    }

    /// The planner's input; none for a VM that has no Node, or one of another cluster.
    pub(super) fn input(&self, limits: &ClusterLimits, key: &VmKey) -> Option<LabelInput> {
        let input = self.parts.fleet.read(|index| index.label_input(key));
        if input.is_none() {
            self.parts.statuses.remove(key);
        }
        input.filter(|input| input.cluster == limits.cluster)
    }

    /// Plans for a VM, with evidence if the plan needs it, and stores the status. None for a VM
    /// that has no Node in this cluster.
    pub(super) async fn draft(
        &self,
        limits: &ClusterLimits,
        key: &VmKey,
        state: &mut ReconcileState,
    ) -> Option<Draft> {
        let mut input = state.overlay(self.input(limits, key)?, now());
        let mut plan = self.planned(&input, None, state);
        let mut failed = None;
        let mut requested = false;
        let mut term_too_short = false;
        let is_paused = state.label_wait(now()).is_some();
        if plan.needs_evidence
            && !is_paused
            && self.parts.writer.can_reach(&limits.cluster)
            && self.leads_or_skips()
        {
            let _ = limits.wait(EVIDENCE_TOKENS).await;
            let request = self.parts.writer.evidence(&limits.cluster, &input.node);
            let answer = self.parts.write_access.within(LEADERSHIP_MARGIN, request).await;
            requested = answer.is_some();
            term_too_short = !requested;
            // The input may have changed while the evidence was read.
            input = state.overlay(self.input(limits, key)?, now());
            match answer {
                Some(Ok(evidence)) => {
                    self.parts.metrics.evidence_read("ok");
                    plan = self.planned(&input, Some(&evidence), state);
                }
                Some(Err(error)) => {
                    self.parts.metrics.evidence_read(error.as_str());
                    plan = self.planned(&input, None, state);
                    self.log_failed(limits, &error);
                    failed = Some(error);
                }
                None => {
                    self.parts.metrics.evidence_read("cut");
                    plan = self.planned(&input, None, state);
                }
            }
        }
        let mut patch = plan.patch.clone();
        let contested = patch
            .as_mut()
            .map(|patch| state.conflicts.remove_contested(patch, now()));
        let contested = contested.unwrap_or_default();
        if !contested.is_empty() {
            patch = patch.filter(|patch| !patch.labels.is_empty());
        }
        let decisions = plan.decisions.clone();
        let is_off = |key: &str| plan.patch.iter().any(|patch| patch.labels.contains_key(key));
        let contested = Contested {
            lately: state.contested_lately.update(&contested, is_off, now()),
            keys: contested,
        };
        let waits_for_safety = |one: &Decision| matches!(one.reason, Reason::Unsafe | Reason::SafetyUnknown);
        let waits = decisions.iter().any(waits_for_safety) || !contested.keys.is_empty();
        let recheck = [
            waits.then_some(self.parts.settings.recheck),
            state.unconfirmed.due(now(), self.parts.settings.confirm),
            state.contested_lately.due(now()),
        ];
        let recheck = recheck
            .into_iter()
            .flatten()
            .min()
            .filter(|_| self.parts.write_access.leads());
        let refused = || {
            let status = self.parts.statuses.get(key);
            status.and_then(|status| status.error.clone())
        };
        let error = match &failed {
            Some(failed) => Some(failed.to_string()),
            None if patch.is_some() && !self.parts.settings.write => Some(NO_WRITES.to_owned()),
            None if plan.needs_evidence && !self.parts.writer.can_reach(&limits.cluster) => {
                Some(SendError::NoClient.to_string())
            }
            // Until a request succeeds.
            None if is_paused || patch.is_some() => refused(),
            None => None,
        };
        self.store_status(key, &input, plan, error, contested);
        Some(Draft {
            input,
            patch,
            decisions,
            recheck,
            failed,
            requested,
            term_too_short,
        })
    }

    /// The plan without the changes of infra node labels that are not confirmed yet.
    fn planned(
        &self,
        input: &LabelInput,
        evidence: Option<&Evidence>,
        state: &mut ReconcileState,
    ) -> NodePlan {
        let now = now();
        let plan_with = |unconfirmed: &BTreeSet<String>| {
            if unconfirmed.is_empty() {
                return (self.parts.plan)(input, evidence);
            }
            let input = LabelInput {
                unconfirmed: unconfirmed.clone(),
                ..input.clone()
            };
            (self.parts.plan)(&input, evidence)
        };
        let before = state.unconfirmed.keys(now, self.parts.settings.confirm);
        let plan = plan_with(&before);
        state.unconfirmed.update(input, &plan.decisions, now);
        let after = state.unconfirmed.keys(now, self.parts.settings.confirm);
        if after == before { plan } else { plan_with(&after) }
    }

    fn store_status(
        &self,
        key: &VmKey,
        input: &LabelInput,
        plan: NodePlan,
        error: Option<String>,
        contested: Contested,
    ) {
        let status = LabelStatus {
            cluster: input.cluster.clone(),
            node: input.node.clone(),
            infra_node: input.host.as_ref().map(|host| host.name.clone()),
            plan,
            planned_at: status_store::now(),
            written_at: None,
            error,
            contested: contested.keys,
            contested_lately: contested.lately,
            by_leader: self.parts.write_access.leads(),
        };
        let before = self.parts.statuses.put(key, status.clone());
        if status.by_leader {
            self.record_problems(key, input, before.as_deref(), &status);
        }
    }
}
