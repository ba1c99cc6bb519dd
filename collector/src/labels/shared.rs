//! What the lanes of all user clusters share, and how one VM is looked at: plan, look at what depends on it, send.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use virtfleet_collector_core::labels::{
    evidence::Evidence,
    plan::{Decision, LabelInput, NodePatch, NodePlan, Reason},
};
use virtfleet_wire::ids::VmKey;

use super::{
    book::{self, LabelBook, LabelStatus},
    confirm::Confirm,
    metrics::{LabelMetrics, Once},
    queue::Next,
    road::{Claim, Looked, Memory, Road},
    writer::{Aimed, NodeWriter, SendError},
};
use crate::{events::Events, fleet::Fleet, leader::Writing};

/// After a patch the same Node is left alone for this long, so that repeats come together; the last of them is still written within a
/// second.
const COALESCE: Duration = Duration::from_millis(500);
/// A request is begun only while the leadership lasts this much longer.
const MARGIN: Duration = Duration::from_secs(1);
/// Conflicts in a row after which a Node is left to settle.
const CONFLICTS: u32 = 3;
/// A look at what depends on a Node costs as much as this many patches: it is so many requests.
const EVIDENCE_TOKENS: u32 = 3;

/// How the sender works.
#[derive(Debug, Clone, Copy)]
pub struct SenderSettings {
    /// Whether anything is written at all.
    pub write: bool,
    /// Requests to one user cluster in a second.
    pub per_second: u32,
    /// Requests to one user cluster at once.
    pub parallel: usize,
    /// How soon a key that waits for safety is looked at again.
    pub recheck: Duration,
    /// Time for which a changed label of an infra node must be as it is before Nodes follow.
    pub confirm: Confirm,
}

/// The planner: [`virtfleet_collector_core::labels::plan::plan`], or another in tests.
pub type Planner = fn(&LabelInput, Option<&Evidence>) -> NodePlan;

/// See the module.
pub struct Shared<W> {
    /// Where facts come from.
    pub fleet: Arc<Fleet>,
    /// How clusters are written to.
    pub writer: W,
    /// Whether this process may.
    pub writing: Writing,
    /// Where it is written down.
    pub book: Arc<LabelBook>,
    /// Where people are told.
    pub events: Events,
    /// What is counted.
    pub metrics: LabelMetrics,
    /// How it works.
    pub settings: SenderSettings,
    /// What decides.
    pub plan: Planner,
    pub(super) once: Once,
    /// Something was to be written or looked at while this process did not lead. A term may end and begin anew between two
    /// looks at it, so whoever leads then asks here, too.
    pub(super) missed: AtomicBool,
}

/// What a plan came to, before anything is sent.
pub(super) struct Drafted {
    pub(super) input: LabelInput,
    patch: Option<NodePatch>,
    pub(super) decisions: Vec<Decision>,
    /// When it is to be looked at again, because something waits: for safety, the end of a contest, or a label that may come back.
    again: Option<Duration>,
    failed: Option<SendError>,
    asked: bool,
    /// Too little of the term was left to ask.
    cut: bool,
}

impl<W: NodeWriter> Shared<W> {
    /// Plans for a VM without asking anybody, and writes it down: for a cluster that does not answer.
    pub(super) fn show(&self, road: &Road, key: &VmKey) {
        if let Some(input) = self.input(road, key) {
            let plan = (self.plan)(&input, None);
            let known = self.book.get(key).and_then(|status| status.error.clone());
            self.write_down(key, &input, plan, known, BTreeSet::new());
        }
    }

    fn input(&self, road: &Road, key: &VmKey) -> Option<LabelInput> {
        let input = self.fleet.label_input(key);
        if input.is_none() {
            self.book.remove(key);
        }
        input.filter(|input| input.cluster == road.cluster)
    }

    /// Looks at one VM and sends what is to be sent.
    pub(super) async fn look(&self, road: &Road, key: &VmKey, mut memory: Memory) -> Looked {
        let mut answered = None;
        let next = self.steps(road, key, &mut memory, &mut answered).await;
        if !matches!(next, Next::After(_)) {
            memory.failures = None;
        }
        Looked {
            next,
            memory,
            answered,
        }
    }

    async fn steps(
        &self,
        road: &Road,
        key: &VmKey,
        memory: &mut Memory,
        answered: &mut Option<bool>,
    ) -> Next {
        let mut has_token = false;
        let mut written = false;
        let mut conflicts = 0;
        loop {
            let Some(mut draft) = self.draft(road, key, memory).await else {
                return Next::Forget;
            };
            if draft.asked {
                *answered = Some(!draft.failed.as_ref().is_some_and(SendError::is_clusters));
            }
            let rest = |memory: &mut Memory| match (&draft.failed, draft.again) {
                (Some(error), _) => Self::after(error, memory),
                (None, _) if draft.cut => Next::Recheck(MARGIN),
                (None, Some(pause)) => Next::Recheck(pause),
                (None, None) if written => Next::RestFor(COALESCE),
                (None, None) => Next::Rest,
            };
            let may = self.settings.write && !draft.input.suspended;
            let Some(patch) = draft.patch.take().filter(|_| may && self.leads_or_missed()) else {
                return rest(memory);
            };
            if written {
                // A patch was just sent, and there is already more to do: with whatever else comes.
                return Next::After(COALESCE);
            }
            let identity = draft
                .input
                .node_uid
                .clone()
                .zip(draft.input.resource_version.clone());
            let Some((uid, resource_version)) = identity else {
                return Next::Rest;
            };
            if !self.writer.can_reach(&road.cluster) {
                self.book.set_error(key, Some(SendError::NoClient.to_string()));
                let pause = memory.pause(Duration::from_secs(2), Duration::from_secs(30));
                return Next::After(pause);
            }
            if !std::mem::replace(&mut has_token, true)
                && self.wait(road, 1).await
                && self.input(road, key).map(|input| memory.overlay(input, now()))
                    != Some(draft.input.clone())
            {
                // Something has changed while it waited: what was planned before is not sent.
                continue;
            }
            let Some(claim) = Claim::new(road, &draft.input.node) else {
                return Next::After(COALESCE);
            };
            let aimed = Aimed {
                node: draft.input.node.clone(),
                uid,
                resource_version,
                patch,
            };
            let sent = self
                .writing
                .within(MARGIN, self.writer.patch(&road.cluster, &aimed))
                .await;
            drop(claim);
            let Some(sent) = sent else {
                self.metrics.patched("cut");
                return Next::Recheck(MARGIN);
            };
            self.metrics
                .patched(sent.as_ref().map_or_else(SendError::as_str, |_| "ok"));
            *answered = Some(!sent.as_ref().is_err_and(SendError::is_clusters));
            match sent {
                Ok(fresh) => {
                    memory.contest.written(&aimed.patch, now());
                    memory.failures = None;
                    self.tell_moved(key, &draft);
                    memory.fresh = Some((aimed.node, fresh, now()));
                    self.book.set_written(key);
                    written = true;
                }
                Err(SendError::Conflict) if conflicts < CONFLICTS => {
                    conflicts += 1;
                    has_token = false;
                    if let Some(next) = self.fetch(road, key, &aimed, memory).await {
                        return next;
                    }
                }
                Err(SendError::Gone) => return Next::Rest,
                Err(error) => return self.failed(road, key, &error, memory),
            }
        }
    }

    /// After a conflict: the Node as it is now. What is to become of the VM when that is not to be had.
    async fn fetch(&self, road: &Road, key: &VmKey, aimed: &Aimed, memory: &mut Memory) -> Option<Next> {
        let get = self.writer.get(&road.cluster, &aimed.node);
        match self.writing.within(MARGIN, get).await {
            Some(Ok(fresh)) if Some(&aimed.uid) == fresh.uid.as_ref() => {
                memory.fresh = Some((aimed.node.clone(), fresh, now()));
                None
            }
            // Another Node of the same name: the watch tells of it.
            Some(Ok(_) | Err(SendError::Gone)) => Some(Next::Rest),
            Some(Err(error)) => Some(self.failed(road, key, &error, memory)),
            None => Some(Next::Recheck(MARGIN)),
        }
    }

    /// Whether this process may write; when not, and it may again, everything is looked at.
    fn leads_or_missed(&self) -> bool {
        let leads = self.writing.leads();
        if !leads {
            self.missed.store(true, Ordering::Relaxed);
        }
        leads
    }

    /// Plans for a VM, with what depends on its Node where that matters, and writes it down.
    async fn draft(&self, road: &Road, key: &VmKey, memory: &mut Memory) -> Option<Drafted> {
        let mut input = memory.overlay(self.input(road, key)?, now());
        let mut plan = self.planned(&input, None, memory);
        let mut failed = None;
        let mut asked = false;
        let mut cut = false;
        if plan.needs_evidence && self.writer.can_reach(&road.cluster) && self.leads_or_missed() {
            let _ = self.wait(road, EVIDENCE_TOKENS).await;
            let look = self.writer.evidence(&road.cluster, &input.node);
            let looked = self.writing.within(MARGIN, look).await;
            asked = looked.is_some();
            cut = !asked;
            // What was wanted when the look began may not be what is wanted now.
            input = memory.overlay(self.input(road, key)?, now());
            match looked {
                Some(Ok(evidence)) => {
                    self.metrics.looked("ok");
                    plan = self.planned(&input, Some(&evidence), memory);
                }
                Some(Err(error)) => {
                    self.metrics.looked(error.as_str());
                    plan = self.planned(&input, None, memory);
                    self.log_failed(road, &error);
                    failed = Some(error);
                }
                None => {
                    self.metrics.looked("cut");
                    plan = self.planned(&input, None, memory);
                }
            }
        }
        let mut patch = plan.patch.clone();
        let contested = patch.as_mut().map(|patch| memory.contest.hold_back(patch, now()));
        let contested = contested.unwrap_or_default();
        if !contested.is_empty() {
            patch = patch.filter(|patch| !patch.labels.is_empty());
        }
        let decisions = plan.decisions.clone();
        let unsettled = |one: &Decision| matches!(one.reason, Reason::Unsafe | Reason::SafetyUnknown);
        let waits = decisions.iter().any(unsettled) || !contested.is_empty();
        let again = [
            waits.then_some(self.settings.recheck),
            memory.unconfirmed.due(now(), self.settings.confirm),
        ];
        let again = again.into_iter().flatten().min().filter(|_| self.writing.leads());
        let error = failed.as_ref().map(ToString::to_string);
        self.write_down(key, &input, plan, error, contested);
        Some(Drafted {
            input,
            patch,
            decisions,
            again,
            failed,
            asked,
            cut,
        })
    }

    /// The plan, in which what an infra node has just lost or changed does not count yet.
    fn planned(&self, input: &LabelInput, evidence: Option<&Evidence>, memory: &mut Memory) -> NodePlan {
        let now = now();
        let plan_with = |unconfirmed: &BTreeSet<String>| {
            if unconfirmed.is_empty() {
                return (self.plan)(input, evidence);
            }
            let input = LabelInput {
                unconfirmed: unconfirmed.clone(),
                ..input.clone()
            };
            (self.plan)(&input, evidence)
        };
        let before = memory.unconfirmed.keys(now, self.settings.confirm);
        let plan = plan_with(&before);
        memory.unconfirmed.note(input, &plan.decisions, now);
        let after = memory.unconfirmed.keys(now, self.settings.confirm);
        if after == before { plan } else { plan_with(&after) }
    }

    /// Waits until `tokens` are there; returns whether that took time.
    async fn wait(&self, road: &Road, tokens: u32) -> bool {
        let at = {
            let mut bucket = road.bucket.lock().unwrap_or_else(PoisonError::into_inner);
            (0..tokens).map(|_| bucket.take(now())).last()
        };
        let Some(at) = at.filter(|at| *at > now()) else {
            return false;
        };
        tokio::time::sleep_until(at.into()).await;
        true
    }

    fn write_down(
        &self,
        key: &VmKey,
        input: &LabelInput,
        plan: NodePlan,
        error: Option<String>,
        contested: BTreeSet<String>,
    ) {
        let status = LabelStatus {
            cluster: input.cluster.clone(),
            node: input.node.clone(),
            infra_node: input.host.as_ref().map(|host| host.name.clone()),
            plan,
            planned_at: book::now(),
            written_at: None,
            error,
            contested,
            by_leader: self.writing.leads(),
        };
        let before = self.book.put(key, status.clone());
        if status.by_leader {
            self.tell_troubles(key, input, before.as_deref(), &status);
        }
    }

    fn failed(&self, road: &Road, key: &VmKey, error: &SendError, memory: &mut Memory) -> Next {
        self.book.set_error(key, Some(error.to_string()));
        self.log_failed(road, error);
        Self::after(error, memory)
    }

    fn log_failed(&self, road: &Road, error: &SendError) {
        if self.once.first(&road.cluster, error.as_str()) {
            tracing::warn!(cluster = %road.cluster, %error, "a request to the user cluster failed; tried again");
        }
    }

    fn after(error: &SendError, memory: &mut Memory) -> Next {
        let seconds = Duration::from_secs;
        let (first, most) = match error {
            SendError::Refused(_) => (seconds(30), seconds(600)),
            // A server that has just started refuses everybody until it has read its roles.
            SendError::Denied(_) => (Duration::from_millis(500), seconds(60)),
            _ => (Duration::from_millis(500), seconds(30)),
        };
        Next::After(memory.pause(first, most))
    }
}

/// tokio's clock, which tests can hold.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
