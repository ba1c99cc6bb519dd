use proptest::prelude::*;
use virtfleet_collector_core::{
    facts::{InfraNode, Labels},
    labels::plan::{Action, Reason},
};

use super::*;

const CONFIRM: ConfirmationDelays = ConfirmationDelays {
    removal: Duration::from_secs(30),
    change: Duration::from_secs(20),
};

fn input(host: &str, written_on: Option<&str>) -> LabelInput {
    let owned = written_on.map(|uid| {
        format!("{{\"v\":1,\"labels\":{{\"rack\":{{\"value\":\"a\",\"infraNodeUid\":\"{uid}\",\"policy\":\"p\"}}}}}}")
    });
    let text = serde_json::json!({
        "vm": { "namespace": "ns", "name": "vm" }, "vmiUid": null, "cluster": "c", "clusterLabels": {}, "suspended": false,
        "node": "n", "nodeUid": null, "labels": {}, "owned": owned, "kubeletLabels": [], "resourceVersion": null,
        "host": null, "stoodOn": [], "policies": [],
    });
    let mut input: LabelInput = serde_json::from_value(text).unwrap();
    input.host = Some(InfraNode {
        name: host.parse().unwrap(),
        uid: Some(format!("uid-{host}").parse().unwrap()),
        labels: Labels::new(),
        ready: None,
        conditions: virtfleet_collector_core::reported::ReportedConditions::default(),
        reported_ms: None,
        unschedulable: false,
        taints: Vec::new(),
        allocatable: None,
    });
    input
}

fn decision(current: Option<&str>, desired: Option<&str>) -> Decision {
    Decision {
        key: "rack".to_owned(),
        source: Some("rack".to_owned()),
        policy: None,
        mode: None,
        current: current.map(str::to_owned),
        desired: desired.map(str::to_owned),
        action: Action::Keep,
        reason: Reason::InLine,
        message: String::new(),
        dry_run: false,
    }
}

proptest! {
        /// For every sequence of values, a Node gets a new value exactly when the infra node's
        /// label has had it for the whole delay.
    #[test]
    fn only_a_stable_value_is_written(steps in prop::collection::vec((0..4_usize, 1..40_u64), 1..60)) {
        let started = Instant::now();
        let (mut now, mut on_node, mut since) = (started, "a", started);
        let mut last = "a";
        let mut unconfirmed = UnconfirmedChanges::default();
        let on = input("h1", None);
        unconfirmed.update(&on, &[decision(Some("a"), Some("a"))], now);
        for (value, seconds) in steps {
            let value = ["a", "b", "c", ""][value];
            if value != last {
                (last, since) = (value, now);
            }
            let desired = Some(value).filter(|value| !value.is_empty());
            for _ in 0..seconds {
                let plan = decision(Some(on_node), desired);
                unconfirmed.update(&on, &[plan], now);
                let stable_for = now.duration_since(since);
                let length = if desired.is_none() { CONFIRM.removal } else { CONFIRM.change };
                let confirmed = unconfirmed.keys(now, CONFIRM).is_empty();
                prop_assert_eq!(confirmed, desired == Some(on_node) || stable_for >= length);
                if !confirmed {
                    prop_assert_eq!(unconfirmed.due(now, CONFIRM), length.checked_sub(stable_for));
                } else if let Some(value) = desired {
                    on_node = value;
                }
                now += Duration::from_secs(1);
            }
        }
    }
}

#[test]
fn labels_of_a_vm_that_moves_need_no_confirmation() {
    let now = Instant::now();
    let mut unconfirmed = UnconfirmedChanges::default();
    unconfirmed.update(
        &input("h1", Some("uid-h1")),
        &[decision(Some("a"), Some("a"))],
        now,
    );
    let moved = [decision(Some("a"), Some("b"))];
    unconfirmed.update(&input("h2", Some("uid-h1")), &moved, now);
    assert!(unconfirmed.keys(now, CONFIRM).is_empty());
    // A second plan in the same run: after a conflict, or with evidence.
    unconfirmed.update(&input("h2", Some("uid-h1")), &moved, now);
    assert!(unconfirmed.keys(now, CONFIRM).is_empty());
    // The VM moves while a label of its old infra node is pending.
    let mut unconfirmed = UnconfirmedChanges::default();
    unconfirmed.update(&input("h1", Some("uid-h1")), &moved, now);
    assert_eq!(unconfirmed.keys(now, CONFIRM).len(), 1);
    unconfirmed.update(
        &input("h2", Some("uid-h1")),
        &[decision(Some("a"), Some("c"))],
        now,
    );
    assert!(unconfirmed.keys(now, CONFIRM).is_empty());
}

/// After a start there is no last plan: the ownership annotation decides.
#[test]
fn a_collector_that_starts_confirms_a_change_and_follows_a_move() {
    let now = Instant::now();
    let differs = [decision(Some("a"), Some("b"))];
    for (written_on, waits) in [(Some("uid-h1"), true), (Some("uid-h0"), false), (None, false)] {
        let mut unconfirmed = UnconfirmedChanges::default();
        unconfirmed.update(&input("h1", written_on), &differs, now);
        assert_eq!(unconfirmed.keys(now, CONFIRM).len(), usize::from(waits));
    }
}

/// A policy with another source applies at once, and so does one that begins to write.
#[test]
fn an_edited_policy_needs_no_confirmation() {
    let now = Instant::now();
    let on = input("h1", Some("uid-h1"));
    let mut unconfirmed = UnconfirmedChanges::default();
    unconfirmed.update(&on, &[decision(Some("a"), Some("a"))], now);
    let other = Decision {
        source: Some("other".to_owned()),
        ..decision(Some("a"), Some("b"))
    };
    unconfirmed.update(&on, &[other], now);
    assert!(unconfirmed.keys(now, CONFIRM).is_empty());
}
