//! Conditions and findings of one VM for its `GuestHealth`. They contain no measurements: those are
//! in the metrics, and each new value would rewrite the object.

use virtfleet_wire::finding::{Finding, Severity};

use crate::{
    findings,
    labels::plan::{Action, Decision, NodePlan},
    view::{AgentStatus, VmDetail, VmState},
};

/// Maximum findings in a `GuestHealth`.
pub const MAX_FINDINGS: usize = 20;
/// Maximum characters of a message.
pub const MAX_MESSAGE_CHARS: usize = 500;
/// Silence of an agent, in milliseconds, after which `AgentReporting` is false: more than two
/// missed pulls at the default interval.
pub const SILENCE_THRESHOLD_MS: u64 = 90_000;

/// Reason of `AgentReporting` where no agent is pulled. `Ready` does not depend on it then.
pub const NOT_PULLED: &str = "NotPulled";

/// State of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionState {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It is unknown.
    Unknown,
    /// It is not known yet: the previous state stays; unknown without one.
    Unchanged,
}

/// One condition of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmCondition {
    /// `Placed`, `AgentReporting` or `LabelsTrue`.
    pub kind: &'static str,
    /// State.
    pub state: ConditionState,
    /// Reason, one word in CamelCase.
    pub reason: &'static str,
    /// Message, one line.
    pub message: String,
}

/// State of a VM's labels.
#[derive(Debug, Clone, Copy)]
pub struct LabelPlanStatus<'a> {
    /// The last plan.
    pub plan: &'a NodePlan,
    /// Error of the last attempt to write.
    pub error: Option<&'a str>,
}

/// All conditions of a VM. `silent_ms` is the time in milliseconds for which its agent is silent.
pub fn conditions(vm: &VmDetail, labels: Option<LabelPlanStatus<'_>>, silent_ms: u64) -> [VmCondition; 3] {
    [placed(vm), reporting(vm, silent_ms), labelled(vm, labels)]
}

fn condition(
    kind: &'static str,
    state: ConditionState,
    reason: &'static str,
    message: impl Into<String>,
) -> VmCondition {
    VmCondition {
        kind,
        state,
        reason,
        message: cut(&message.into()),
    }
}

fn placed(vm: &VmDetail) -> VmCondition {
    let condition = |state, reason, message: String| condition("Placed", state, reason, message);
    let unknown = vm
        .findings_list
        .iter()
        .any(|one| one.id == findings::INFRA_NODE_UNKNOWN);
    match (&vm.vm.infra_node, vm.vm.state) {
        (_, VmState::Stopped) => condition(ConditionState::False, "Stopped", "the VM is not started".into()),
        (_, VmState::Succeeded | VmState::Failed) => condition(
            ConditionState::False,
            "Ended",
            format!("the VM has {}", vm.vm.state.as_str()),
        ),
        (None, state) => condition(
            ConditionState::False,
            "NotScheduled",
            format!("the VM is {} and not scheduled yet", state.as_str()),
        ),
        (Some(node), _) if unknown => condition(
            ConditionState::False,
            "InfraNodeUnknown",
            format!("the VM runs on {node}, which is not in the inventory"),
        ),
        (Some(node), _) => condition(ConditionState::True, "Placed", format!("the VM runs on {node}")),
    }
}

fn reporting(vm: &VmDetail, silent_ms: u64) -> VmCondition {
    let condition = |state, reason, message: String| condition("AgentReporting", state, reason, message);
    match vm.vm.agent.status {
        AgentStatus::Up => condition(ConditionState::True, "Up", "the agent answers".into()),
        AgentStatus::Waiting => condition(
            ConditionState::Unchanged,
            "Waiting",
            "the agent has not been pulled yet".into(),
        ),
        AgentStatus::Disabled => condition(
            ConditionState::Unknown,
            NOT_PULLED,
            "the collector pulls no agent (neither enrolment nor scrape.tls is set)".into(),
        ),
        AgentStatus::Off => condition(
            ConditionState::False,
            "NotRunning",
            format!("the VM is {}, so its agent cannot answer", vm.vm.state.as_str()),
        ),
        AgentStatus::Silent if silent_ms < SILENCE_THRESHOLD_MS => condition(
            ConditionState::Unchanged,
            "Waiting",
            "the agent has missed an answer".into(),
        ),
        // The class and not the message, which has ports and times that differ between attempts.
        AgentStatus::Silent => {
            let class = vm
                .vm
                .agent
                .failure
                .as_ref()
                .map_or("unknown", |failure| failure.class.as_str());
            condition(
                ConditionState::False,
                "Silent",
                format!("the agent does not answer ({class}); `virtfleetctl vm` shows why"),
            )
        }
    }
}

fn labelled(vm: &VmDetail, labels: Option<LabelPlanStatus<'_>>) -> VmCondition {
    let condition = |state, reason, message: String| condition("LabelsTrue", state, reason, message);
    if vm.vm.user_node.is_none() {
        return condition(
            ConditionState::Unknown,
            "NoNode",
            "the VM is not a Node of a user cluster".into(),
        );
    }
    let Some(LabelPlanStatus { plan, error }) = labels else {
        return condition(
            ConditionState::Unchanged,
            "NotPlanned",
            "the labels have not been planned yet".into(),
        );
    };
    let off: Vec<&Decision> = plan
        .decisions
        .iter()
        .filter(|one| one.action != Action::Keep && !one.dry_run)
        .collect();
    let Some(first) = off.first() else {
        return condition(
            ConditionState::True,
            "InLine",
            "every label has its desired value".into(),
        );
    };
    let lines: Vec<_> = off
        .iter()
        .map(|one| format!("{}: {}", one.key, one.message))
        .collect();
    let mut message = lines.join("; ");
    if let Some(error) = error {
        message = format!("{error}; {message}");
    }
    condition(ConditionState::False, first.reason.as_str(), message)
}

/// The most severe findings, each id once, most severe first: id, severity, message.
pub fn worst(all: &[Finding]) -> Vec<(String, Severity, String)> {
    let mut worst: Vec<&Finding> = all.iter().collect();
    worst.sort_by(|a, b| (b.severity, &a.id, &a.message).cmp(&(a.severity, &b.id, &b.message)));
    worst.dedup_by(|a, b| a.id == b.id && a.severity == b.severity);
    let named = worst.into_iter().take(MAX_FINDINGS);
    named
        .map(|one| (one.id.clone(), one.severity, cut(&one.message)))
        .collect()
}

fn cut(text: &str) -> String {
    if text.chars().count() <= MAX_MESSAGE_CHARS {
        return text.to_owned();
    }
    text.chars().take(MAX_MESSAGE_CHARS - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::facts::Labels;
    use crate::{
        labels::plan::Reason,
        pull_result::{Failure, FailureClass},
        view::{AgentView, SeverityCounts, VmView},
    };

    fn detail(state: VmState, status: AgentStatus) -> VmDetail {
        VmDetail {
            vm: VmView {
                namespace: "ns".parse().unwrap(),
                name: "a".parse().unwrap(),
                uid: None,
                cluster: Some("c".parse().unwrap()),
                user_node: Some("a".parse().unwrap()),
                infra_node: Some("h1".parse().unwrap()),
                region: None,
                zone: None,
                state,
                agent: AgentView {
                    status,
                    address: None,
                    way: None,
                    version: None,
                    verified_ms: None,
                    last_seen_ms: None,
                    last_try_ms: None,
                    took_ms: None,
                    failure: Some(Failure::new(
                        FailureClass::Timeout,
                        "10.0.0.1:41234 after 10001 ms",
                    )),
                },
                guest: None,
                findings: 0,
                severities: SeverityCounts::default(),
                findings_key: 0,
                cluster_label: None,
            },
            labels: Labels::default(),
            infra_node_labels: Labels::default(),
            user_node_labels: Labels::default(),
            migration: None,
            interfaces: Vec::new(),
            identity: BTreeMap::default(),
            findings_list: Vec::new(),
            enrolment: None,
            report: None,
        }
    }

    #[test]
    fn each_state_has_its_reason() {
        let described =
            |vm: &VmDetail, silent| conditions(vm, None, silent).map(|one| (one.state, one.reason));
        let mut vm = detail(VmState::Running, AgentStatus::Up);
        let planned = (ConditionState::Unchanged, "NotPlanned");
        assert_eq!(
            described(&vm, 0),
            [
                (ConditionState::True, "Placed"),
                (ConditionState::True, "Up"),
                planned
            ]
        );
        vm.vm.agent.status = AgentStatus::Silent;
        assert_eq!(described(&vm, 89_999)[1], (ConditionState::Unchanged, "Waiting"));
        assert_eq!(described(&vm, 90_000)[1], (ConditionState::False, "Silent"));
        assert!(!conditions(&vm, None, 90_000)[1].message.contains("41234"));
        vm.vm.infra_node = None;
        vm.vm.user_node = None;
        vm.vm.state = VmState::Starting;
        assert_eq!(described(&vm, 0)[0], (ConditionState::False, "NotScheduled"));
        assert_eq!(described(&vm, 0)[2], (ConditionState::Unknown, "NoNode"));
        let stopped = detail(VmState::Stopped, AgentStatus::Off);
        assert_eq!(
            described(&stopped, 0)[..2],
            [
                (ConditionState::False, "Stopped"),
                (ConditionState::False, "NotRunning")
            ]
        );
    }

    #[test]
    fn labels_are_true_when_only_dry_runs_differ() {
        let vm = detail(VmState::Running, AgentStatus::Up);
        let one = |action, dry_run| Decision {
            key: "zone".into(),
            source: None,
            policy: None,
            mode: None,
            current: None,
            desired: None,
            action,
            reason: Reason::Unsafe,
            message: "a volume is bound".into(),
            dry_run,
        };
        let mut plan = NodePlan {
            decisions: vec![one(Action::Keep, false), one(Action::Set, true)],
            ..NodePlan::default()
        };
        let described = |plan: &NodePlan| {
            let [_, _, labels] = conditions(&vm, Some(LabelPlanStatus { plan, error: None }), 0);
            (labels.state, labels.reason, labels.message)
        };
        assert_eq!(described(&plan).0, ConditionState::True);
        plan.decisions.push(one(Action::Report, false));
        assert_eq!(
            described(&plan),
            (ConditionState::False, "Unsafe", "zone: a volume is bound".into())
        );
    }

    #[test]
    fn findings_are_limited_and_sorted_by_severity() {
        let make = |n: usize, severity| {
            Finding::new(&format!("f{n:03}"), severity, ("VM", "a"), "R", "é".repeat(2000))
        };
        let mut all: Vec<_> = (0..100).map(|n| make(n, Severity::Info)).collect();
        all.push(make(500, Severity::Critical));
        all.push(make(500, Severity::Critical));
        let worst = worst(&all);
        assert_eq!(
            (worst.len(), worst[0].0.as_str(), worst[1].0.as_str()),
            (MAX_FINDINGS, "f500", "f000")
        );
        assert_eq!(worst[0].2.chars().count(), MAX_MESSAGE_CHARS);
    }
}
