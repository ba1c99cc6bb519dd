//! Labels that do not have the requested values and that the collector does not write: as findings
//! about user clusters, and as a line of `virtfleetctl status`. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use virtfleet_collector_core::{
    findings::LABELS_NOT_AS_REQUESTED,
    fleet_status::{LabelProblem, LabelSummary},
    labels::plan::{Action, Decision, Reason},
};
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, NodeName, VmKey},
};

use super::status_store::LabelStatus;

/// Maximum keys that a finding names.
const MAX_KEYS: usize = 5;

impl LabelStatus {
    /// Why a key does not have its desired value, as the metrics count it; none if it has it.
    pub(super) fn drift_of(&self, decision: &Decision) -> Option<Reason> {
        if decision.action == Action::Keep || decision.dry_run {
            return None;
        }
        let is_contested = self.contested.contains(&decision.key);
        Some(if is_contested {
            Reason::Contested
        } else {
            decision.reason
        })
    }

    /// Why a key is not written although it should have another value; none if it has that, or
    /// will be written soon. A key that was contested has its value for moments only, unless it is
    /// not to be written any more.
    fn trouble_of(&self, decision: &Decision) -> Option<Reason> {
        let only_reported = decision.action == Action::Report || decision.reason == Reason::Suspended;
        let is_written = !only_reported && !decision.dry_run;
        if is_written && self.contested_lately.contains(&decision.key) {
            return Some(Reason::Contested);
        }
        let reason = self.drift_of(decision)?;
        match (decision.action, reason) {
            (_, Reason::Contested | Reason::Suspended) => Some(reason),
            // The evidence is read for each plan but that of a suspended UserCluster.
            (Action::Report, Reason::SafetyUnknown) if !self.plan.needs_evidence => Some(Reason::Suspended),
            // Without an error, the evidence is being read.
            (Action::Report, Reason::SafetyUnknown) => self.error.as_ref().map(|_| reason),
            (Action::Report, _) => Some(reason),
            // Without an error, it is being written.
            _ => self.error.as_ref().map(|_| Reason::NotWritten),
        }
    }

    fn troubles(&self) -> impl Iterator<Item = (&str, Reason)> {
        let decisions = self.plan.decisions.iter();
        decisions.filter_map(|one| Some((one.key.as_str(), self.trouble_of(one)?)))
    }
}

/// The summary of these Nodes, with an error if asked; none without a Node for which this process
/// has planned a label as the leader. A Node without policies has a status and no label.
pub fn summary<'a>(
    statuses: impl Iterator<Item = &'a LabelStatus>,
    with_error: bool,
) -> Option<LabelSummary> {
    let (mut nodes, mut not_as_requested, mut error) = (0, 0, None);
    let mut reasons: BTreeMap<Reason, usize> = BTreeMap::new();
    let has_labels = |status: &&LabelStatus| status.by_leader && !status.plan.decisions.is_empty();
    for status in statuses.filter(has_labels) {
        nodes += 1;
        let of_node: BTreeSet<Reason> = status.troubles().map(|(_, reason)| reason).collect();
        not_as_requested += usize::from(!of_node.is_empty());
        let is_failure = |reason: &Reason| matches!(reason, Reason::NotWritten | Reason::SafetyUnknown);
        if with_error && error.is_none() && of_node.iter().any(is_failure) {
            error.clone_from(&status.error);
        }
        for reason in of_node {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    let reasons = reasons.into_iter();
    let mut reasons: Vec<_> = reasons
        .map(|(reason, nodes)| LabelProblem { reason, nodes })
        .collect();
    reasons.sort_by_key(|one| std::cmp::Reverse(one.nodes));
    (nodes > 0).then_some(LabelSummary {
        nodes,
        not_as_requested,
        reasons,
        error,
    })
}

/// Nodes by key and reason.
type Troubles<'a> = BTreeMap<(&'a str, Reason), BTreeSet<&'a NodeName>>;

/// One finding per user cluster.
pub(super) fn findings(all: &BTreeMap<VmKey, Arc<LabelStatus>>) -> Vec<Finding> {
    let mut clusters: BTreeMap<&ClusterName, Troubles<'_>> = BTreeMap::new();
    for status in all.values().filter(|status| status.by_leader) {
        for trouble in status.troubles() {
            let of_cluster = clusters.entry(&status.cluster).or_default();
            of_cluster.entry(trouble).or_default().insert(&status.node);
        }
    }
    clusters
        .into_iter()
        .map(|(cluster, troubles)| finding(cluster, &troubles))
        .collect()
}

fn finding(cluster: &ClusterName, troubles: &Troubles<'_>) -> Finding {
    let nodes: BTreeSet<&NodeName> = troubles.values().flatten().copied().collect();
    let keys = troubles.iter().take(MAX_KEYS);
    let mut keys: Vec<String> = keys
        .map(|((key, reason), nodes)| format!("{key}: {} on {}", reason.as_str(), nodes.len()))
        .collect();
    let more = troubles.len().saturating_sub(MAX_KEYS);
    if more > 0 {
        keys.push(format!("{more} more"));
    }
    // What a policy asks for is done: it is reported, or waits until it is safe.
    let is_asked = |reason: &Reason| {
        matches!(
            reason,
            Reason::Drift | Reason::Unsafe | Reason::Initial | Reason::Suspended
        )
    };
    let severity = if troubles.keys().all(|(_, reason)| is_asked(reason)) {
        Severity::Info
    } else {
        Severity::Warning
    };
    let what = if nodes.len() == 1 { "Node" } else { "Nodes" };
    let message = format!(
        "labels of {} {what} of the user cluster {cluster} do not have the requested values, and are not written: {}",
        nodes.len(),
        keys.join("; ")
    );
    let subject = ("UserCluster", cluster.as_str());
    let found = Finding::new(
        LABELS_NOT_AS_REQUESTED,
        severity,
        subject,
        "LabelsNotAsRequested",
        message,
    );
    found
        .with("cluster", cluster)
        .with("nodes", nodes.len())
        .remedy(format!(
            "virtfleetctl labels diff --cluster {cluster} -o wide says for each key why; a Contested key has another writer, a \
             Foreign one may be taken over by the policy (takeover), and a NotWritten one has an error"
        ))
}

#[cfg(test)]
mod tests {
    use virtfleet_collector_core::labels::plan::NodePlan;

    use super::*;

    fn decision(key: &str, action: Action, reason: Reason) -> Decision {
        Decision {
            key: key.to_owned(),
            source: None,
            policy: None,
            mode: None,
            current: None,
            desired: None,
            action,
            reason,
            message: String::new(),
            dry_run: false,
        }
    }

    fn status(cluster: &str, node: &str, decisions: Vec<Decision>, contested: &[&str]) -> LabelStatus {
        LabelStatus {
            cluster: cluster.parse().unwrap(),
            node: node.parse().unwrap(),
            infra_node: None,
            plan: NodePlan {
                decisions,
                needs_evidence: true,
                ..NodePlan::default()
            },
            planned_at: String::new(),
            written_at: None,
            error: None,
            contested: contested.iter().map(|key| (*key).to_owned()).collect(),
            contested_lately: BTreeSet::new(),
            by_leader: true,
        }
    }

    #[test]
    fn trouble_is_a_finding_per_user_cluster_and_a_summary() {
        let foreign = || decision("rack", Action::Report, Reason::Foreign);
        let moved = || decision("zone", Action::Set, Reason::Moved);
        let dry = Decision {
            dry_run: true,
            ..foreign()
        };
        let mut standby = status("c", "n9", vec![foreign()], &[]);
        standby.by_leader = false;
        let of = [
            status("a", "n1", vec![foreign(), moved()], &["zone"]),
            status("a", "n2", vec![foreign(), moved()], &[]),
            status(
                "a",
                "n3",
                vec![decision("rack", Action::Keep, Reason::InLine), dry],
                &[],
            ),
            status(
                "b",
                "n1",
                vec![decision("rack", Action::Report, Reason::Drift)],
                &[],
            ),
            status(
                "b",
                "n2",
                vec![decision("rack", Action::Report, Reason::Suspended)],
                &[],
            ),
            standby,
        ];
        let key = |number: usize| VmKey {
            namespace: "ns".parse().unwrap(),
            name: format!("vm-{number}").parse().unwrap(),
        };
        let all: BTreeMap<_, _> = of
            .into_iter()
            .enumerate()
            .map(|(n, one)| (key(n), Arc::new(one)))
            .collect();
        let found = findings(&all);
        let shown: Vec<_> = found
            .iter()
            .map(|one| {
                (
                    one.subject.name.as_str(),
                    one.severity,
                    one.evidence["nodes"].as_str(),
                )
            })
            .collect();
        assert_eq!(shown, [("a", Severity::Warning, "2"), ("b", Severity::Info, "2")]);
        assert!(
            found[0]
                .message
                .ends_with("rack: Foreign on 2; zone: Contested on 1"),
            "{}",
            found[0].message
        );
        let summary = summary(all.values().map(|one| &**one), true).unwrap();
        assert_eq!((summary.nodes, summary.not_as_requested), (5, 4));
        let reasons: Vec<_> = summary
            .reasons
            .iter()
            .map(|one| (one.reason, one.nodes))
            .collect();
        let once = [Reason::Drift, Reason::Suspended, Reason::Contested];
        let expected: Vec<_> = [(Reason::Foreign, 2)]
            .into_iter()
            .chain(once.map(|reason| (reason, 1)))
            .collect();
        assert_eq!(reasons, expected);
        assert_eq!(summary.error, None);
        assert_eq!(super::summary(std::iter::empty(), true), None);
        // No policy applies to it.
        let unlabelled = status("c", "n1", Vec::new(), &[]);
        assert_eq!(super::summary([&unlabelled].into_iter(), true), None);
        let both = [&unlabelled, &*all[&key(0)]];
        assert_eq!(super::summary(both.into_iter(), true).unwrap().nodes, 1);
    }

    #[test]
    fn what_cannot_be_written_is_not_as_requested() {
        let set = || decision("zone", Action::Set, Reason::Moved);
        let unknown = || decision("rack", Action::Report, Reason::SafetyUnknown);
        let kept = || decision("row", Action::Keep, Reason::InLine);
        let lately = |mut status: LabelStatus| {
            status.contested_lately = BTreeSet::from(["row".to_owned()]);
            status
        };
        let not_read = |mut status: LabelStatus| {
            status.plan.needs_evidence = false;
            status
        };
        let suspended = decision("zone", Action::Set, Reason::Suspended);
        let reported = decision("row", Action::Report, Reason::Drift);
        for (status, error, expected) in [
            (status("a", "n", vec![set(), unknown(), kept()], &[]), None, None),
            (status("a", "n", vec![kept()], &[]), Some("not allowed"), None),
            (
                status("a", "n", vec![set()], &[]),
                Some("not allowed"),
                Some(Reason::NotWritten),
            ),
            (
                status("a", "n", vec![unknown()], &[]),
                Some("not allowed"),
                Some(Reason::SafetyUnknown),
            ),
            (
                status("a", "n", vec![suspended], &[]),
                None,
                Some(Reason::Suspended),
            ),
            (
                not_read(status("a", "n", vec![unknown()], &[])),
                None,
                Some(Reason::Suspended),
            ),
            (
                lately(status("a", "n", vec![kept()], &[])),
                None,
                Some(Reason::Contested),
            ),
            (
                lately(status("a", "n", vec![reported], &[])),
                None,
                Some(Reason::Drift),
            ),
        ] {
            let status = LabelStatus {
                error: error.map(str::to_owned),
                ..status
            };
            let found = summary([&status].into_iter(), true).unwrap();
            let reasons: Vec<_> = found.reasons.iter().map(|one| one.reason).collect();
            assert_eq!(reasons, Vec::from_iter(expected), "{status:?}");
            assert_eq!(found.not_as_requested, reasons.len());
            let is_failure = expected.is_some() && error.is_some();
            assert_eq!(found.error.as_deref(), error.filter(|_| is_failure));
            assert_eq!(summary([&status].into_iter(), false).unwrap().error, None);
        }
    }
}
