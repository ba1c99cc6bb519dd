use proptest::prelude::*;
use virtfleet_collector_core::{
    facts::{InfraNode, Labels},
    labels::plan::{Action, Reason},
};

use super::*;

const CONFIRM: Confirm = Confirm {
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
    /// Whatever an infra node's label does, a Node gets a value that it does not have only after the label has had it for the
    /// whole time; and at the end of that time it does.
    #[test]
    fn only_what_stays_is_written(steps in prop::collection::vec((0..4_usize, 1..40_u64), 1..60)) {
        let begun = Instant::now();
        let (mut now, mut on_node, mut since) = (begun, "a", begun);
        let mut last = "a";
        let mut unconfirmed = Unconfirmed::default();
        let on = input("h1", None);
        unconfirmed.note(&on, &[decision(Some("a"), Some("a"))], now);
        for (value, seconds) in steps {
            let value = ["a", "b", "c", ""][value];
            if value != last {
                (last, since) = (value, now);
            }
            let desired = Some(value).filter(|value| !value.is_empty());
            for _ in 0..seconds {
                let plan = decision(Some(on_node), desired);
                unconfirmed.note(&on, &[plan], now);
                let stands = now.duration_since(since);
                let length = if desired.is_none() { CONFIRM.removal } else { CONFIRM.change };
                let free = unconfirmed.keys(now, CONFIRM).is_empty();
                prop_assert_eq!(free, desired == Some(on_node) || stands >= length);
                if !free {
                    prop_assert_eq!(unconfirmed.due(now, CONFIRM), length.checked_sub(stands));
                } else if let Some(value) = desired {
                    on_node = value;
                }
                now += Duration::from_secs(1);
            }
        }
    }
}

#[test]
fn a_vm_that_moves_waits_for_nothing() {
    let now = Instant::now();
    let mut unconfirmed = Unconfirmed::default();
    unconfirmed.note(
        &input("h1", Some("uid-h1")),
        &[decision(Some("a"), Some("a"))],
        now,
    );
    let moved = [decision(Some("a"), Some("b"))];
    unconfirmed.note(&input("h2", Some("uid-h1")), &moved, now);
    assert!(unconfirmed.keys(now, CONFIRM).is_empty());
    // It is planned again: after a conflict, or with what depends on its Node.
    unconfirmed.note(&input("h2", Some("uid-h1")), &moved, now);
    assert!(unconfirmed.keys(now, CONFIRM).is_empty());
    // While it waits for the infra node that it leaves.
    let mut unconfirmed = Unconfirmed::default();
    unconfirmed.note(&input("h1", Some("uid-h1")), &moved, now);
    assert_eq!(unconfirmed.keys(now, CONFIRM).len(), 1);
    unconfirmed.note(
        &input("h2", Some("uid-h1")),
        &[decision(Some("a"), Some("c"))],
        now,
    );
    assert!(unconfirmed.keys(now, CONFIRM).is_empty());
}

/// Nothing is remembered after a start: what the annotation says decides.
#[test]
fn a_collector_that_starts_confirms_a_change_and_follows_a_move() {
    let now = Instant::now();
    let differs = [decision(Some("a"), Some("b"))];
    for (written_on, waits) in [(Some("uid-h1"), true), (Some("uid-h0"), false), (None, false)] {
        let mut unconfirmed = Unconfirmed::default();
        unconfirmed.note(&input("h1", written_on), &differs, now);
        assert_eq!(unconfirmed.keys(now, CONFIRM).len(), usize::from(waits));
    }
}

/// A policy that names another source is followed at once, and so is one that begins to write.
#[test]
fn an_edited_policy_waits_for_nothing() {
    let now = Instant::now();
    let on = input("h1", Some("uid-h1"));
    let mut unconfirmed = Unconfirmed::default();
    unconfirmed.note(&on, &[decision(Some("a"), Some("a"))], now);
    let other = Decision {
        source: Some("other".to_owned()),
        ..decision(Some("a"), Some("b"))
    };
    unconfirmed.note(&on, &[other], now);
    assert!(unconfirmed.keys(now, CONFIRM).is_empty());
}
