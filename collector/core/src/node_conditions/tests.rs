//! Table and properties of the plan, with a model of the API server's merge.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::{
    health::{HealthCause, HealthConditionStatus, HealthConditionView, HealthVerdict},
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
};

const DISKS: &str = "virtfleet.io/DisksReady";

fn health(kind: &str, status: HealthConditionStatus, reason: &str, message: &str) -> HealthConditionView {
    HealthConditionView {
        kind: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        cause: None,
        severity: HealthVerdict::Healthy,
        message: message.to_owned(),
        tenant_message: None,
        next: String::new(),
        since_ms: 0,
        is_undecided: false,
        is_measured: false,
    }
}

fn input(
    requested: &[NodeConditionKind],
    present: &[(&str, ReportedStatus, &str, &str)],
    health: Vec<HealthConditionView>,
) -> NodeConditionInput {
    let present = present.iter().map(|(kind, status, reason, message)| {
        ReportedCondition::new(kind, *status, Some(reason), Some(message))
    });
    NodeConditionInput {
        vm: crate::store::tests::key("ns", "a"),
        cluster: "c".parse().unwrap(),
        requested: requested.iter().copied().collect(),
        node: "a".parse().unwrap(),
        node_uid: Some("u1".parse().unwrap()),
        resource_version: Some("7".to_owned()),
        present: ReportedConditions::new(present),
        health,
    }
}

fn good() -> HealthConditionView {
    health(
        "DisksReady",
        HealthConditionStatus::True,
        "DisksReady",
        "all declared disks are ready (1)",
    )
}

fn bad() -> HealthConditionView {
    HealthConditionView {
        cause: Some(HealthCause::Guest),
        is_measured: true,
        ..health(
            "DisksReady",
            HealthConditionStatus::False,
            "DiskFailing",
            "disk data: refused, 7 of 9",
        )
    }
}

/// What one plan does: types with status and whether it is a transition, and removed types.
fn summary(input: &NodeConditionInput) -> (Vec<(String, &'static str, bool)>, Vec<String>) {
    let patch = plan_conditions(input).unwrap_or_default();
    let set = patch.set.into_iter();
    let set = set.map(|one| (one.kind, one.status.as_str(), one.is_transition));
    (set.collect(), patch.remove)
}

#[test]
fn table() {
    let disks = [NodeConditionKind::DisksReady];
    let ready = ("Ready", ReportedStatus::True, "KubeletReady", "");
    let same = (
        DISKS,
        ReportedStatus::True,
        "DisksReady",
        "all declared disks are ready (1)",
    );
    let set = |status, is_transition| vec![(DISKS.to_owned(), status, is_transition)];
    let nothing = (Vec::new(), Vec::new());

    // Not requested: nothing is written.
    assert_eq!(summary(&input(&[], &[ready], vec![good()])), nothing);
    // Requested and missing: it is added.
    assert_eq!(
        summary(&input(&disks, &[ready], vec![good()])),
        (set("True", true), vec![])
    );
    // Present: no write, also after a restart.
    assert_eq!(summary(&input(&disks, &[ready, same], vec![good()])), nothing);
    // A problem.
    assert_eq!(
        summary(&input(&disks, &[same], vec![bad()])),
        (set("False", true), vec![])
    );
    // Another number in the message of a measured condition.
    let measured = (
        DISKS,
        ReportedStatus::False,
        "DiskFailing",
        "disk data: refused, 1 of 9",
    );
    assert_eq!(summary(&input(&disks, &[measured], vec![bad()])), nothing);
    // Another reason with the same status is no transition.
    let warned = (DISKS, ReportedStatus::False, "DiskWarning", "m");
    assert_eq!(
        summary(&input(&disks, &[warned], vec![bad()])),
        (set("False", false), vec![])
    );
    // Another message of a condition without numbers.
    let older = (
        DISKS,
        ReportedStatus::True,
        "DisksReady",
        "all declared disks are ready (2)",
    );
    assert_eq!(
        summary(&input(&disks, &[older], vec![good()])),
        (set("True", false), vec![])
    );
    // Evidence is gone.
    let lost = health("DisksReady", HealthConditionStatus::Unknown, "ReportTooOld", "m");
    assert_eq!(
        summary(&input(&disks, &[same], vec![lost.clone()])),
        (set("Unknown", true), vec![])
    );
    // The collector has just started: what the Node has is kept.
    let undecided = HealthConditionView {
        is_undecided: true,
        ..lost
    };
    assert_eq!(summary(&input(&disks, &[same], vec![undecided.clone()])), nothing);
    assert_eq!(summary(&input(&disks, &[], vec![undecided])), nothing);
    // The opt-in ends, or names another condition.
    let removed = (Vec::new(), vec![DISKS.to_owned()]);
    assert_eq!(summary(&input(&[], &[ready, same], vec![good()])), removed);
    assert_eq!(
        summary(&input(
            &[NodeConditionKind::DnsReady],
            &[ready, same],
            vec![good()]
        )),
        removed
    );
    // Only the prefix is ours.
    let foreign = ("notvirtfleet.io/DisksReady", ReportedStatus::True, "x", "x");
    assert_eq!(summary(&input(&[], &[ready, foreign], vec![good()])), nothing);
}

#[test]
fn the_patch_has_preconditions_and_a_transition_time_only_on_a_transition() {
    let warned = (DISKS, ReportedStatus::False, "DiskWarning", "m");
    let dns = ("virtfleet.io/DNSReady", ReportedStatus::True, "DNSReady", "m");
    let patch = plan_conditions(&input(
        &[NodeConditionKind::DisksReady, NodeConditionKind::VirtioTuned],
        &[warned, dns],
        vec![
            bad(),
            health("VirtioTuned", HealthConditionStatus::True, "VirtioTuned", "ok"),
        ],
    ));
    let body = patch
        .unwrap()
        .to_strategic_patch("7", "u1", "2026-01-01T00:00:00Z");
    assert_eq!(
        body,
        serde_json::json!({
            "metadata": { "resourceVersion": "7", "uid": "u1" },
            "status": { "conditions": [
                { "type": DISKS, "status": "False", "reason": "DiskFailing", "message": "disk data: refused, 7 of 9",
                  "lastHeartbeatTime": "2026-01-01T00:00:00Z" },
                { "type": "virtfleet.io/VirtioTuned", "status": "True", "reason": "VirtioTuned", "message": "ok",
                  "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                { "$patch": "delete", "type": "virtfleet.io/DNSReady" },
            ] },
        })
    );
}

#[test]
fn messages_are_bounded_and_texts_of_the_infra_cluster_are_not_repeated() {
    let long = HealthConditionView {
        message: format!("\u{1b}[31m{}", "x".repeat(10_000)),
        ..bad()
    };
    let disks = [NodeConditionKind::DisksReady];
    let planned = plan_conditions(&input(&disks, &[], vec![long.clone()]))
        .unwrap()
        .set;
    assert!(
        planned[0].message.len() <= MAX_NODE_MESSAGE_BYTES,
        "{}",
        planned[0].message
    );
    assert!(!planned[0].message.contains('\u{1b}'));
    // The Node has it now, and it is the same for the next plan.
    let stored = (
        DISKS,
        ReportedStatus::False,
        "DiskFailing",
        planned[0].message.as_str(),
    );
    let unmeasured = HealthConditionView {
        is_measured: false,
        ..long
    };
    assert_eq!(plan_conditions(&input(&disks, &[stored], vec![unmeasured])), None);

    let storage = HealthConditionView {
        cause: Some(HealthCause::Storage),
        message: "pvc-7 on host-secret-3 is not bound".to_owned(),
        ..bad()
    };
    let planned = plan_conditions(&input(&disks, &[], vec![storage])).unwrap().set;
    assert!(
        !planned[0].message.contains("host-secret"),
        "{}",
        planned[0].message
    );
}

#[test]
fn every_kind_has_a_name_and_no_kind_of_the_infra_cluster_is_offered() {
    for kind in NodeConditionKind::ALL {
        assert_eq!(NodeConditionKind::of(kind.as_str()), Some(kind));
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
    }
    for name in [
        "HostReady",
        "Placed",
        "Running",
        "NodeReady",
        "Migratable",
        "LabelsInSync",
        "",
    ] {
        assert_eq!(NodeConditionKind::of(name), None, "{name}");
    }
}

/// A Node's conditions by type: status, reason, message, and time of the last transition.
type Model = BTreeMap<String, (String, String, String, String)>;

/// Merges a patch as the API server does.
fn merge(node: &mut Model, patch: &Value) {
    for entry in patch["status"]["conditions"].as_array().unwrap() {
        let text = |name: &str| entry[name].as_str().map(str::to_owned);
        let kind = text("type").unwrap();
        if entry["$patch"] == "delete" {
            node.remove(&kind);
            continue;
        }
        let one = node.entry(kind).or_default();
        one.0 = text("status").unwrap();
        one.1 = text("reason").unwrap();
        one.2 = text("message").unwrap();
        one.3 = text("lastTransitionTime").unwrap_or_else(|| one.3.clone());
    }
}

fn present(node: &Model) -> ReportedConditions {
    ReportedConditions::new(node.iter().map(|(kind, one)| {
        ReportedCondition::new(kind, ReportedStatus::of(&one.0), Some(&one.1), Some(&one.2))
    }))
}

fn kinds() -> impl Strategy<Value = Vec<NodeConditionKind>> {
    prop::sample::subsequence(NodeConditionKind::ALL.to_vec(), 0..=5)
}

fn views() -> impl Strategy<Value = Vec<HealthConditionView>> {
    let statuses = prop::sample::select(vec![
        HealthConditionStatus::True,
        HealthConditionStatus::False,
        HealthConditionStatus::Unknown,
    ]);
    let causes = prop::option::of(prop::sample::select(HealthCause::ALL.to_vec()));
    let one = (
        statuses,
        "[A-Z][a-z]{0,2}",
        ".{0,300}",
        causes,
        any::<(bool, bool)>(),
    );
    prop::collection::vec(one, 5).prop_map(|all| {
        let all = all.into_iter().zip(NodeConditionKind::ALL);
        all.map(
            |((status, reason, message, cause, (is_undecided, is_measured)), kind)| HealthConditionView {
                cause,
                is_undecided,
                is_measured,
                ..health(kind.as_str(), status, &reason, &message)
            },
        )
        .collect()
    })
}

proptest! {
    /// Over every history: conditions of others are never changed, a second plan is empty, only
    /// requested ones stay, and a transition time changes only with the status.
    #[test]
    fn histories(steps in prop::collection::vec((kinds(), views()), 1..12)) {
        let kubelet = ("True".to_owned(), "KubeletReady".to_owned(), "m".to_owned(), "t0".to_owned());
        let others = ["Ready", "MemoryPressure", "example.com/virtfleet.io/X"];
        let mut node: Model = others.iter().map(|kind| ((*kind).to_owned(), kubelet.clone())).collect();
        for (step, (requested, health)) in steps.into_iter().enumerate() {
            let before = node.clone();
            let mut input = input(&requested, &[], health.clone());
            input.present = present(&node);
            if let Some(patch) = plan_conditions(&input) {
                merge(&mut node, &patch.to_strategic_patch("7", "u1", &format!("t{}", step + 1)));
                prop_assert!(node != before, "a write that changes nothing: {patch:?}");
            }
            input.present = present(&node);
            prop_assert_eq!(plan_conditions(&input), None);
            for kind in others {
                prop_assert_eq!(&node[kind], &kubelet);
            }
            let wanted: Vec<String> = requested.iter().map(|kind| kind.node_type()).collect();
            for (kind, one) in node.iter().filter(|(kind, _)| !others.contains(&kind.as_str())) {
                prop_assert!(wanted.contains(kind), "{kind} stays");
                let was = before.get(kind);
                let is_moved = was.is_none_or(|was| was.0 != one.0);
                prop_assert_eq!(is_moved, was.is_none_or(|was| was.3 != one.3), "{}", kind);
                prop_assert!(one.2.len() <= MAX_NODE_MESSAGE_BYTES);
            }
            for (kind, view) in NodeConditionKind::ALL.into_iter().zip(&health) {
                if requested.contains(&kind) && !view.is_undecided {
                    prop_assert_eq!(&node[&kind.node_type()].0, view.status.as_str());
                }
            }
        }
    }
}
