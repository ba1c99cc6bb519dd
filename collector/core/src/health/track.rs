//! All conditions of one VM, held, and the verdict that follows from them. The caller passes the
//! time.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{
    agent, clock, compute, delivery, disks, dns,
    evaluation::{Evaluation, HealthCondition, MessageContent},
    facts::HealthFacts,
    hold::{HeldCondition, HoldTimes},
    host, migratable, node, placed, running,
    seen::SeenSince,
    spec,
    verdict::{HealthCause, HealthConditionStatus, HealthConditionView, HealthVerdict, HealthView},
    virtio,
};
use crate::pull_result::UnixMs;

/// Health of one VM over time.
#[derive(Debug, Clone)]
pub(crate) struct HealthTrack {
    seen: SeenSince,
    conditions: [HeldCondition; HealthCondition::COUNT],
    /// Verdict and cause, and the time of their last change.
    verdict: (HealthVerdict, Option<HealthCause>),
    since_ms: UnixMs,
    due_ms: Option<UnixMs>,
}

fn evaluate(condition: HealthCondition, facts: &HealthFacts<'_>) -> Evaluation {
    let present = match condition {
        HealthCondition::Placed => placed::evaluate(facts),
        HealthCondition::Running => running::evaluate(facts),
        HealthCondition::HostReady => host::evaluate(facts),
        HealthCondition::AgentReporting => agent::evaluate(facts),
        HealthCondition::NodeReady => node::evaluate(facts),
        HealthCondition::DisksReady => disks::evaluate(facts),
        HealthCondition::DnsReady => dns::evaluate(facts),
        HealthCondition::VirtioTuned => virtio::evaluate(facts),
        HealthCondition::TimeSynced => clock::evaluate(facts),
        HealthCondition::ComputeReady => compute::evaluate(facts),
        HealthCondition::Migratable => migratable::evaluate(facts),
        HealthCondition::MetricsDelivered => delivery::evaluate(facts),
        // It follows from the plan of the leader, not from these facts.
        HealthCondition::SpecInEffect | HealthCondition::LabelsInSync => spec::evaluate(facts),
    };
    let is_platform = matches!(
        condition,
        HealthCondition::Placed | HealthCondition::Running | HealthCondition::HostReady
    );
    if facts.is_inventory_stale && is_platform && present.status == HealthConditionStatus::True {
        return Evaluation::unknown(
            HealthCause::Network,
            "InventoryStale",
            "the collector does not follow the infra cluster at present, so this may be outdated",
        )
        .next("virtfleetctl findings --scope inventory");
    }
    present
}

impl HealthTrack {
    /// The first evaluation of a VM, shown at once.
    pub(crate) fn new(facts: &HealthFacts<'_>) -> Self {
        let conditions = HealthCondition::ALL.map(|condition| {
            HeldCondition::new(HoldTimes::of(condition), evaluate(condition, facts), facts.now_ms)
        });
        let mut track = Self {
            seen: facts.seen,
            conditions,
            verdict: (HealthVerdict::Unknown, None),
            since_ms: facts.now_ms,
            due_ms: None,
        };
        track.conclude(facts);
        track
    }

    /// What has been seen of the VM's state.
    pub(crate) fn seen(&self) -> SeenSince {
        self.seen
    }

    /// Takes the present facts; without `hold` they are shown at once.
    pub(crate) fn observe(&mut self, facts: &HealthFacts<'_>, hold: bool) {
        self.seen = facts.seen;
        for (condition, held) in HealthCondition::ALL.into_iter().zip(&mut self.conditions) {
            held.observe(evaluate(condition, facts), hold, facts.now_ms);
        }
        self.conclude(facts);
    }

    fn conclude(&mut self, facts: &HealthFacts<'_>) {
        let (_, worst) = self.worst();
        let verdict = (worst.severity, worst.cause);
        let verdict = if verdict.0 == HealthVerdict::Healthy {
            (HealthVerdict::Healthy, None)
        } else {
            verdict
        };
        if self.verdict != verdict {
            self.verdict = verdict;
            self.since_ms = facts.now_ms;
        }
        let pending = self.conditions.iter().filter_map(HeldCondition::due_ms);
        self.due_ms = pending.chain(facts.due_ms()).min();
    }

    /// When the health changes next, if no fact does.
    pub(crate) fn due_ms(&self) -> Option<UnixMs> {
        self.due_ms
    }

    /// The condition that decides: the most severe one; of these, the one whose cause explains the
    /// others.
    fn worst(&self) -> (HealthCondition, &Evaluation) {
        let all = HealthCondition::ALL.into_iter();
        let shown = all.zip(self.conditions.iter().map(HeldCondition::shown));
        let rank = |(condition, one): &(HealthCondition, &Evaluation)| {
            let blame = one.cause.map_or(u8::MAX, |cause| cause as u8);
            (std::cmp::Reverse(one.severity), blame, *condition)
        };
        shown
            .min_by_key(rank)
            .unwrap_or((HealthCondition::Placed, self.conditions[0].shown()))
    }

    /// The health as it is shown.
    pub(crate) fn view(&self) -> HealthView {
        let (_, worst) = self.worst();
        let (verdict, cause) = self.verdict;
        let mut shown = self.conditions.iter().map(HeldCondition::shown);
        let common = HealthView {
            verdict,
            cause,
            since_ms: self.since_ms,
            // A problem counts, whatever else is not decided yet.
            is_undecided: verdict <= HealthVerdict::Unknown && shown.any(|one| one.is_undecided),
            conditions_key: self.key(),
            ..HealthView::default()
        };
        if verdict == HealthVerdict::Healthy {
            return HealthView {
                reason: "Healthy".to_owned(),
                message: "there is positive evidence for every required condition".to_owned(),
                ..common
            };
        }
        HealthView {
            reason: worst.reason.to_owned(),
            message: worst.message.to_string(),
            tenant_message: worst.tenant_message.clone(),
            next: worst.next.to_string(),
            ..common
        }
    }

    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for one in self.conditions.iter().map(HeldCondition::shown) {
            (one.status, one.severity, one.cause, one.reason, one.is_undecided).hash(&mut hasher);
            (one.tenant_message.as_deref() == Some("")).hash(&mut hasher);
            if one.content == MessageContent::Object {
                one.tenant_message
                    .as_deref()
                    .unwrap_or(&one.message)
                    .hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// All conditions as they are shown. One about metrics is there only if a stream takes them.
    pub(crate) fn conditions(&self) -> Vec<HealthConditionView> {
        let all = HealthCondition::ALL.into_iter().zip(&self.conditions);
        let all = all.filter(|(_, held)| held.shown().reason != delivery::NO_STREAM);
        all.map(|(condition, held)| view(condition, held.shown(), held.since_ms()))
            .collect()
    }
}

/// A condition for people and programs.
pub(super) fn view(condition: HealthCondition, shown: &Evaluation, since_ms: UnixMs) -> HealthConditionView {
    HealthConditionView {
        kind: condition.as_str().to_owned(),
        status: shown.status,
        reason: shown.reason.to_owned(),
        cause: shown.cause,
        severity: shown.severity,
        message: shown.message.to_string(),
        tenant_message: shown.tenant_message.clone(),
        next: shown.next.to_string(),
        since_ms,
        is_undecided: shown.is_undecided,
        is_measured: shown.content == MessageContent::Numbers,
    }
}
