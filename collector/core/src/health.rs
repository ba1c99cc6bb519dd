//! What is said of one VM in its `GuestHealth`: conditions, in one word and one line each, and what is wrong. No numbers: those
//! are in the metrics, and an object that changed with each of them would never rest.

use virtfleet_wire::finding::{Finding, Severity};

use crate::{
    findings,
    labels::plan::{Action, Decision, NodePlan},
    view::{AgentStatus, VmDetail, VmState},
};

/// The most findings that are named.
pub const MOST_FINDINGS: usize = 20;
/// The most characters of a message.
pub const MOST_MESSAGE: usize = 500;
/// How long an agent may be silent before it counts: two missed pulls and more.
pub const SILENCE_MS: u64 = 90_000;

/// The reason of `AgentReporting` where no agent is pulled. `Ready` does not depend on it then.
pub const NOT_PULLED: &str = "NotPulled";

/// Whether something holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody knows, and nobody has known.
    Unknown,
    /// Nobody knows yet: what was said before stays; unknown when nothing was.
    AsBefore,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// `Placed`, `AgentReporting` or `LabelsTrue`.
    pub kind: &'static str,
    /// Whether it holds.
    pub truth: Truth,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

/// What the sender knows of a VM's labels.
#[derive(Debug, Clone, Copy)]
pub struct Labelled<'a> {
    /// The last plan.
    pub plan: &'a NodePlan,
    /// Why the last attempt to write failed.
    pub error: Option<&'a str>,
}

/// All conditions of a VM. `silent_ms` is for how long its agent is known to be silent.
pub fn verdicts(vm: &VmDetail, labels: Option<Labelled<'_>>, silent_ms: u64) -> [Verdict; 3] {
    [placed(vm), reporting(vm, silent_ms), labelled(vm, labels)]
}

fn say(kind: &'static str, truth: Truth, reason: &'static str, message: impl Into<String>) -> Verdict {
    Verdict {
        kind,
        truth,
        reason,
        message: cut(&message.into()),
    }
}

fn placed(vm: &VmDetail) -> Verdict {
    let say = |truth, reason, message: String| say("Placed", truth, reason, message);
    let unknown = vm
        .findings_list
        .iter()
        .any(|one| one.id == findings::INFRA_NODE_UNKNOWN);
    match (&vm.vm.infra_node, vm.vm.state) {
        (_, VmState::Stopped) => say(Truth::False, "Stopped", "the VM is not started".into()),
        (_, VmState::Succeeded | VmState::Failed) => say(
            Truth::False,
            "Ended",
            format!("the VM has {}", vm.vm.state.as_str()),
        ),
        (None, state) => say(
            Truth::False,
            "NotScheduled",
            format!("the VM is {} and stands nowhere yet", state.as_str()),
        ),
        (Some(node), _) if unknown => say(
            Truth::False,
            "InfraNodeUnknown",
            format!("the VM stands on {node}, which the inventory does not have"),
        ),
        (Some(node), _) => say(Truth::True, "Placed", format!("the VM stands on {node}")),
    }
}

fn reporting(vm: &VmDetail, silent_ms: u64) -> Verdict {
    let say = |truth, reason, message: String| say("AgentReporting", truth, reason, message);
    match vm.vm.agent.status {
        AgentStatus::Up => say(Truth::True, "Up", "the agent answers".into()),
        AgentStatus::Waiting => say(
            Truth::AsBefore,
            "Waiting",
            "the agent has not been asked yet".into(),
        ),
        AgentStatus::Disabled => say(
            Truth::Unknown,
            NOT_PULLED,
            "the collector pulls no agent (scrape.tls is not set)".into(),
        ),
        AgentStatus::Off => say(
            Truth::False,
            "NotRunning",
            format!("the VM is {}, so nobody can answer", vm.vm.state.as_str()),
        ),
        AgentStatus::Silent if silent_ms < SILENCE_MS => say(
            Truth::AsBefore,
            "Waiting",
            "the agent has missed an answer".into(),
        ),
        // The class and not the sentence: that names ports and times, which differ from try to try.
        AgentStatus::Silent => {
            let class = vm
                .vm
                .agent
                .failure
                .as_ref()
                .map_or("unknown", |failure| failure.class.as_str());
            say(
                Truth::False,
                "Silent",
                format!("the agent does not answer ({class}); `virtfleetctl vm` says why"),
            )
        }
    }
}

fn labelled(vm: &VmDetail, labels: Option<Labelled<'_>>) -> Verdict {
    let say = |truth, reason, message: String| say("LabelsTrue", truth, reason, message);
    if vm.vm.user_node.is_none() {
        return say(
            Truth::Unknown,
            "NoNode",
            "the VM is no Node of a user cluster (yet)".into(),
        );
    }
    let Some(Labelled { plan, error }) = labels else {
        return say(
            Truth::AsBefore,
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
        return say(Truth::True, "InLine", "every label is as asked for".into());
    };
    let lines: Vec<_> = off
        .iter()
        .map(|one| format!("{}: {}", one.key, one.message))
        .collect();
    let mut message = lines.join("; ");
    if let Some(error) = error {
        message = format!("{error}; {message}");
    }
    say(Truth::False, first.reason.as_str(), message)
}

/// The worst findings, each id once, worst first.
pub fn worst(all: &[Finding]) -> Vec<(String, Severity, String)> {
    let mut worst: Vec<&Finding> = all.iter().collect();
    worst.sort_by(|a, b| (b.severity, &a.id, &a.message).cmp(&(a.severity, &b.id, &b.message)));
    worst.dedup_by(|a, b| a.id == b.id && a.severity == b.severity);
    let named = worst.into_iter().take(MOST_FINDINGS);
    named
        .map(|one| (one.id.clone(), one.severity, cut(&one.message)))
        .collect()
}

fn cut(text: &str) -> String {
    if text.chars().count() <= MOST_MESSAGE {
        return text.to_owned();
    }
    text.chars().take(MOST_MESSAGE - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::facts::Labels;
    use crate::{
        heard::{Failure, FailureClass},
        labels::plan::Reason,
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
            },
            labels: Labels::default(),
            infra_node_labels: Labels::default(),
            user_node_labels: Labels::default(),
            migration: None,
            interfaces: Vec::new(),
            identity: BTreeMap::default(),
            findings_list: Vec::new(),
            report: None,
        }
    }

    #[test]
    fn each_state_has_its_word() {
        let said = |vm: &VmDetail, silent| verdicts(vm, None, silent).map(|one| (one.truth, one.reason));
        let mut vm = detail(VmState::Running, AgentStatus::Up);
        let planned = (Truth::AsBefore, "NotPlanned");
        assert_eq!(
            said(&vm, 0),
            [(Truth::True, "Placed"), (Truth::True, "Up"), planned]
        );
        vm.vm.agent.status = AgentStatus::Silent;
        assert_eq!(said(&vm, 89_999)[1], (Truth::AsBefore, "Waiting"));
        assert_eq!(said(&vm, 90_000)[1], (Truth::False, "Silent"));
        assert!(!verdicts(&vm, None, 90_000)[1].message.contains("41234"));
        vm.vm.infra_node = None;
        vm.vm.user_node = None;
        vm.vm.state = VmState::Starting;
        assert_eq!(said(&vm, 0)[0], (Truth::False, "NotScheduled"));
        assert_eq!(said(&vm, 0)[2], (Truth::Unknown, "NoNode"));
        let stopped = detail(VmState::Stopped, AgentStatus::Off);
        assert_eq!(
            said(&stopped, 0)[..2],
            [(Truth::False, "Stopped"), (Truth::False, "NotRunning")]
        );
    }

    #[test]
    fn labels_are_true_when_nothing_differs_that_is_not_a_dry_run() {
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
        let said = |plan: &NodePlan| {
            let [_, _, labels] = verdicts(&vm, Some(Labelled { plan, error: None }), 0);
            (labels.truth, labels.reason, labels.message)
        };
        assert_eq!(said(&plan).0, Truth::True);
        plan.decisions.push(one(Action::Report, false));
        assert_eq!(
            said(&plan),
            (Truth::False, "Unsafe", "zone: a volume is bound".into())
        );
    }

    #[test]
    fn findings_are_few_short_and_worst_first() {
        let make = |n: usize, severity| {
            Finding::new(&format!("f{n:03}"), severity, ("VM", "a"), "R", "é".repeat(2000))
        };
        let mut all: Vec<_> = (0..100).map(|n| make(n, Severity::Info)).collect();
        all.push(make(500, Severity::Critical));
        all.push(make(500, Severity::Critical));
        let worst = worst(&all);
        assert_eq!(
            (worst.len(), worst[0].0.as_str(), worst[1].0.as_str()),
            (MOST_FINDINGS, "f500", "f000")
        );
        assert_eq!(worst[0].2.chars().count(), MOST_MESSAGE);
    }
}
